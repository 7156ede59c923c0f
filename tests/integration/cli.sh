#!/bin/bash
# The command line as a newcomer meets it: help, errors with exit codes, a kernel that runs and matches NumPy, bundle, explain, ls.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${KILN_BUILD:-build}") kiln=$build/kiln
work=$(mktemp -d)
port=$(python3 tests/free_port.py)
export KILN_URL=http://127.0.0.1:$port
(cd "$work" && exec "$build/kilnd" --listen "127.0.0.1:$port" --data "$work/data" 2>"$work/log") & # finds hwspecs without being told
daemon=$!
trap 'kill $daemon 2>/dev/null; wait $daemon 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do curl -fsS -m 2 "$KILN_URL/readyz" >/dev/null 2>&1 && break; sleep 0.1; done
failed=0
expect() { # status, text that the output must contain, command...
    local status=$1 text=$2 rc
    shift 2
    "$@" >"$work/out" 2>&1
    rc=$?
    if [ $rc -ne "$status" ] || { [ -n "$text" ] && ! grep -qF -- "$text" "$work/out"; }; then
        echo "FAIL: $* -> status $rc ($status expected), without \"$text\":"
        head -n 15 "$work/out"
        failed=1
    fi
}
expect 0 'verbs:' "$kiln" --help
expect 0 'verbs:' "$kiln" compile --help
expect 64 'no such option' "$kiln" compile MatMul --expr x
expect 64 'wants a value' "$kiln" construct -k
expect 64 'no whole number' "$kiln" construct MatMul -k 0
expect 64 'no verb' "$kiln" frobnicate
expect 64 'which operator' "$kiln" compile
expect 65 'did you mean MatMul' "$kiln" compile matmul a=f32:4x4 b=f32:4x4
expect 65 '/inputs/1/shape' "$kiln" compile MatMul a=f32:4x4 b=f32:5x4
expect 64 'is no input' "$kiln" compile MatMul nonsense
expect 65 'no such target' "$kiln" compile Relu x=f32:4 --target nosuch
expect 64 'kk1-' "$kiln" get nonsense
expect 65 '404' "$kiln" get kk1-0000000000000000000000000000000000000000000000000000000000000000
expect 69 'no answer' "$kiln" ls --url http://127.0.0.1:1
expect 0 'rank' "$kiln" construct MatMul a=f32:512x512 b=f32:512x512 --target nvidia-v100
expect 0 'roofline' "$kiln" explain Softmax x=f32:64x1000 --target nvidia-h200
expect 0 '35 mappings of 7 atoms' "$kiln" mappings 'y[N,K,P,Q] +=! x[N,C,P+R,Q+S]*w[K,C,R,S]' x=f16:2x64x30x30 w=f16:32x64x3x3 --target nvidia-a100 \
    --intrinsic wmma_f16
expect 0 'is no single index of operand b' "$kiln" mappings 'y[N,K,P,Q] +=! x[N,C,P+R,Q+S]*w[K,C,R,S]' x=f16:2x64x30x30 w=f16:32x64x3x3 \
    --target nvidia-a100 --intrinsic wmma_f16
expect 65 'has no instruction "nosuch"' "$kiln" mappings MatMul a=f16:64x64 b=f16:64x64 --target nvidia-a100 --intrinsic nosuch
expect 65 'axis K' "$kiln" construct 'c[M,N] +=! a[M,K]*b[K,N]' a=f32:4x5 b=f32:6x7
expect 0 'verification  run' "$kiln" compile MatMul a=f32:64x80 b=f32:80x48
expect 0 'verification  run' "$kiln" compile MatMul a=f32:64x80 b=f32:80x48 --grad a --grad b
expect 0 'verification  run' "$kiln" compile Softmax x=f32:32x100 --grad x
expect 65 '/grad/0' "$kiln" compile MatMul a=f32:64x80 b=f32:80x48 --grad c
expect 0 'hit' "$kiln" compile 'q[I,J] +=! w[R,J]*x[I,R]' w=f32:80x48 x=f32:64x80
expect 0 'x86-64' "$kiln" ls
expect 0 'nvidia-h200' "$kiln" targets
expect 0 'C compiler' "$kiln" doctor
expect 65 '/id' "$kiln" probe 'Not An Id'
expect 0 '' "$kiln" probe here -o "$work/here.json"
expect 0 'rank' "$kiln" construct MatMul a=f32:512x512 b=f32:512x512 --target "$work/here.json"
expect 65 'nosuch.json' "$kiln" construct MatMul a=f32:512x512 b=f32:512x512 --target "$work/nosuch.json"
expect 0 '"here"' curl -fsS -X PUT "$KILN_URL/v1/targets/here" -H 'Content-Type: application/json' --data-binary "@$work/here.json"
expect 0 'verification  run' "$kiln" compile MatMul a=f32:64x80 b=f32:80x48 --target here
python3 - "$work/here.json" <<'PY' || failed=1
import json, sys
here = json.load(open(sys.argv[1]))
level = {l["name"]: l for l in here["levels"]}
assert level["l1"]["bandwidth_gbs"] > level["dram"]["bandwidth_gbs"] and level["l1"]["latency_ns"] < level["dram"]["latency_ns"], level
assert level["l1"]["capacity_bytes"] < level["l2"]["capacity_bytes"] < level["dram"]["capacity_bytes"], level
assert here["peaks"]["f32"] > here["peaks"]["f64"] and here["fma_per_cycle"] in (1, 2) and here["fma_latency"] >= 2, here
assert all(0 < i["interval"] <= i["latency"] for i in here["intrinsics"] if i["name"].startswith("fma")), here["intrinsics"]
assert set(here["features"]) <= set(here["x-cpuid"]) and here["units"] == here["rates_for_units"] >= 1 and here["launch_us"] > 0, here
PY
expect 0 'kiln_abi_version' "$kiln" compile MatMul a=f32:64x80 b=f32:80x48 --as source
expect 0 '' "$kiln" compile MatMul a=f32:64x80 b=f32:80x48 --as bundle -o "$work/k.zip"
python3 - "$work" "$kiln" <<'PY' || failed=1
import json, os, subprocess, sys, urllib.request, zipfile
import numpy as np
work, kiln = sys.argv[1:]
z = zipfile.ZipFile(work + "/k.zip")
assert z.namelist()[0] == "manifest.json" and all(i.compress_type == 0 for i in z.infolist()), z.namelist()
json.loads(z.read("manifest.json"))
def run(name, inputs, want, *args):
    types = []
    for n, x in inputs.items():
        np.save(f"{work}/{n}.npy", x)
        types.append(f"{n}=f32:" + "x".join(map(str, x.shape)))
        args += ("--input", f"{n}={work}/{n}.npy")
    p = subprocess.run([kiln, "run", name, *types, *args, "-o", work + "/y.npy", "--json"], capture_output=True, text=True)
    assert p.returncode == 0, (name, p.stdout, p.stderr)
    got = np.load(work + "/y.npy")
    assert json.loads(p.stdout)["ok"], p.stdout
    assert got.shape == want.shape and np.allclose(got, want, rtol=2e-4, atol=2e-5), (name, abs(got - want).max())
    return got
r = np.random.default_rng(1)
f = lambda *s: r.standard_normal(s).astype("f4")
a, b = f(130, 257), f(257, 99)
run("MatMul", {"a": a, "b": b}, a @ b)
run("MatMul", {"a": a, "b": b}, a @ b, "--threads", "2")
x = f(33, 100)
e = np.exp(x - x.max(1, keepdims=True))
run("Softmax", {"x": x}, e / e.sum(1, keepdims=True))
def traced(name, *args):
    out = subprocess.run([kiln, "mappings", name, *args, "--intrinsic", "fma_f32", "--json"], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    open(work + "/trace", "w").write([m["trace"] for r in json.loads(out.stdout)["results"] for m in r.get("mappings", [])][-1])
    return ["--trace", work + "/trace"]
run("MatMul", {"a": a, "b": b}, a @ b, *traced("MatMul", "a=f32:130x257", "b=f32:257x99"))
xg, wg = f(1, 6, 7, 7), f(4, 3, 3, 3)
yg = np.stack([sum((xg[0, g * 3:g * 3 + 3, p:p + 3, q:q + 3] * wg[k]).sum() for g in (k // 2,)) for k in range(4) for p in range(5) for q in range(5)])
run("Conv", {"x": xg, "w": wg}, yg.reshape(1, 4, 5, 5), "--attr", "group=2",
    *traced("Conv", "x=f32:1x6x7x7", "w=f32:4x3x3x3", "--attr", "group=2"))
run("z[J,I] = x[I,J]*2.0", {"x": x}, x.T * 2)
def alike(name, inputs, axis, want, *args): # equal along `axis`: so are the results, to the bit, those of the last tile too
    got = run(name, inputs, want, *args)
    assert (got == np.take(got, [0], axis)).all(), (name, args, np.unique(np.nonzero(got != np.take(got, [0], axis))[axis]))
rounded = lambda s, by: s / by != s * (np.float32(1) / by) # quotients that a reciprocal misses by a bit
v = f(1000)
v = v[rounded(v, np.float32(7))][:1].repeat(37)
alike("y[I] = x[I]/7.0", {"x": v}, 0, v / 7)
plane = lambda c: np.repeat(f(8, 1, 13, 13) + 1, c, 1)
for c in 37, 131:
    p = plane(c)
    alike("GlobalAveragePool", {"x": p}, 1, p.mean((2, 3), keepdims=True))
    alike("ReduceMean", {"x": p}, 1, p.mean(3, keepdims=True), "--attr", "axes=3")
    alike("t[N,H,C] +=! x[N,C,H,W]; y[N,H,C] = t[N,H,C]/13.0", {"x": p}, 2, p.mean(3).transpose(0, 2, 1))
    q = p.transpose(0, 2, 3, 1).copy()
    alike("ReduceMean", {"x": q}, 3, q.mean((1, 2), keepdims=True), "--attr", "axes=1,2")
    m = np.repeat(f(1, 257), c, 0)
    alike("MatMul", {"a": m, "b": b}, 0, m @ b)
open(work + "/trace", "w").write("fuse t0 F0 R0 R1\nfuse out0 F1 S2 S3\nsplit out0 S1 8 16\nreorder out0 S1.0 | S0.0 F1.0 | S1.1 S1.2\n"
    "unroll out0 S1.1\nvectorize out0 S1.2\nsplit t0 S1 8 16\nreorder t0 S1.0 | S0.0 | F0.0 | S1.1 S1.2\nunroll t0 S1.1\nvectorize t0 S1.2\n"
    "compute_at t0 out0 S1.0\n")
p = f(1000, 1, 13, 13) + 1
p = p[rounded(np.add.accumulate(p.reshape(1000, 169), 1)[:, -1], np.float32(169))][:1].repeat(131, 1)
alike("GlobalAveragePool", {"X": p}, 1, p.mean((2, 3), keepdims=True), "--trace", work + "/trace") # lanes along the channels, three in scalars
post = lambda query, body: json.load(urllib.request.urlopen(urllib.request.Request(os.environ["KILN_URL"] + "/v1/mappings" + query, body.encode(), {"Content-Type": "application/json"})))
request = json.dumps({"op": "MatMulInteger", "target": "x86-64-vnni", "inputs": [{"name": n, "dtype": t, "shape": [70, 70]} for n, t in (("a", "u8"), ("b", "i8"))]})
maps = {r["instruction"]: r for r in post("", request)["results"]}
assert "the statement accumulates in i32" in maps["fma_f32"]["unsupported"] and maps["vpdpbusd"]["count"] == 1, maps
best = maps["vpdpbusd"]["mappings"][0]
assert best["predicted_us"] > 0 and best["calls"] == 70 * 5 * 18 and best["padding"] == 80 * 72 / 70 / 70, best
assert all(r["why"] and r["operand"] for r in maps["vpdpbusd"]["refused"] if "loop" not in r["why"]), maps
assert len(post("?intrinsic=vpdpbusd", request)["results"]) == 1
print("numpy agrees")
PY
exit $failed
