#!/bin/bash
# The operators that a tensor unit is for, through the mapping predicted to be the fastest: compiled for two GPUs and verified in emulation; what has no
# mapping says why. The same on this CPU's multiply-add, run.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${KILN_BUILD:-build}")
work=$(mktemp -d)
port=$(python3 tests/free_port.py)
export KILN_URL=http://127.0.0.1:$port
"$build/kilnd" --listen "127.0.0.1:$port" --data "$work/data" --hwspecs hwspecs 2>"$work/log" &
daemon=$!
trap 'kill $daemon 2>/dev/null; wait $daemon 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do curl -fsS -m 2 "$KILN_URL/readyz" >/dev/null 2>&1 && break; sleep 0.1; done
python3 - "$work" "$build/kiln" <<'PY'
import json, os, subprocess, sys, urllib.request
work, kiln = sys.argv[1:]
def call(*args):
    p = subprocess.run([kiln, *args], capture_output=True, text=True)
    return p.returncode, p.stdout, p.stderr
def results(target, instruction, args):
    status, out, err = call("mappings", *args, "--target", target, "--intrinsic", instruction, "--json")
    assert status == 0, (args, err)
    return json.loads(out)["results"]
gpu = [("MatMul", "a=f16:37x29", "b=f16:29x23"), ("MatMul", "a=f16:3x37x29", "b=f16:3x29x23"), ("Gemm", "a=f16:21x18", "b=f16:17x18", "--attr", "transB=1"),
       ("Conv", "x=f16:1x5x9x9", "w=f16:6x5x3x3", "--attr", "pads=1,1,1,1"), ("Conv", "x=f16:1x8x9x9", "w=f16:6x4x3x3", "--attr", "group=2"),
       ("Conv", "x=f16:1x8x9x9", "w=f16:8x1x3x3", "--attr", "group=8"), ("BatchConv", "x=f16:2x3x7x7", "w=f16:2x4x3x3x3"),
       ("CapsuleConv", "x=f16:1x3x7x7", "w=f16:4x3x3x3x3"), ("ConvTranspose", "x=f16:1x5x6x6", "w=f16:5x4x3x3"),
       ("s[B,I,J] +=! q[B,I,D]*k[B,J,D]", "q=f16:2x19x16", "k=f16:2x21x16"), ("o[B,I,D] +=! p[B,I,J]*v[B,J,D]", "p=f16:2x19x21", "v=f16:2x21x16")]
checked = 0
for n, args in enumerate(gpu):
    target = ("nvidia-a100", "nvidia-h200")[n % 2]
    found = [m for r in results(target, "wmma_f16", args) for m in r.get("mappings", []) if "trace" in m]
    assert found, args
    open(work + "/trace", "w").write(found[0]["trace"])
    status, out, err = call("compile", *args, "--target", target, "--trace", work + "/trace", "--quality", "verified")
    assert status == 0 and "emulated" in out + err, (args, found[0], out, err)
    checked += 1
for args, why in ((("Softmax", "x=f16:8x8"), "combines its terms in another way"), (("MatMul", "a=f32:8x8", "b=f32:8x8"), "is f16, but"),
                  (("MatMulInteger", "a=u8:8x8", "b=i8:8x8"), "accumulates in i32, the instruction in f32")):
    assert all(why in r["unsupported"] or "where the instruction has" in r["unsupported"] for r in results("nvidia-a100", "wmma_f16", args)), args
for args in (("MatMul", "a=f32:37x29", "b=f32:29x23"), ("Conv", "x=f32:1x5x9x9", "w=f32:6x5x3x3", "--attr", "pads=1,1,1,1"),
             ("Conv", "x=f32:1x8x9x9", "w=f32:8x1x3x3", "--attr", "group=8")):
    for m in [m for r in results("host", "fma_f32", args) for m in r["mappings"]][:4]:
        open(work + "/trace", "w").write(m["trace"])
        status, out, err = call("run", *args, "--trace", work + "/trace", "--json")
        assert status == 0 and json.loads(out)["ok"], (args, m, out, err)
        checked += 1
# a device with instructions of its own is one file
def put(device):
    request = urllib.request.Request(f"{os.environ['KILN_URL']}/v1/targets/{device['id']}", json.dumps(device).encode(), {"Content-Type": "application/json"}, method="PUT")
    try: return urllib.request.urlopen(request).status, {}
    except urllib.error.HTTPError as e: return e.code, json.load(e)
units = json.load(open("tests/data/units.json"))
assert put(units)[0] == 201
for instruction, types in (("mma_8x32x16", ("f16", "f16")), ("dot", ("u8", "i8")), ("outer", ("f16", "f16"))):
    args = ("MatMulInteger" if types[0] == "u8" else "MatMul", f"a={types[0]}:17x19", f"b={types[1]}:19x23")
    os.environ["KILN_HWSPECS"] = "tests/data"
    found = [m for r in results("units", instruction, args) for m in r.get("mappings", []) if "trace" in m]
    open(work + "/trace", "w").write(found[0]["trace"])
    status, out, err = call("compile", *args, "--target", "units", "--trace", work + "/trace")
    assert status == 0 and "run" in out + err, (instruction, out, err)
    checked += 1
# so is one that has its operands elsewhere: the kernel is another one, and right
dot = next(i for i in units["intrinsics"] if i["name"] == "dot")
texts = set()
for n, memory in enumerate((None, "b[I,R] = global[R,I]", "a[R] = shared[R]; b[I,R] = tile[I%2,R,I//2]", "d[I] = tile[I]")):
    units["id"] = f"units{n}"
    if memory: dot["memory"] = memory
    assert put(units)[0] == 201, memory
    open(work + "/trace", "w").write("map out0 dot I=S1;R=R0\n")
    args = ("MatMulInteger", "a=u8:17x20", "b=i8:20x24", "--target", units["id"], "--trace", work + "/trace")
    status, out, err = call("compile", *args)
    assert status == 0 and "run" in out + err, (memory, out, err)
    texts.add(call("compile", *args, "--as", "source")[1].split("k_call_dot_0", 1)[1])
    checked += 1
assert len(texts) == 4, len(texts)
for memory, why in (("b[I,R] = tile[I//2,R]", "no place for I%2"), ("b[R,I] = tile[R,I]", "index 0 is R on the left, and I in compute"), ("b[I,R] = sram[I,R]", "is no scope")):
    dot["memory"] = memory
    status, problem = put(units)
    assert 400 <= status < 500 and f"/intrinsics/{units['intrinsics'].index(dot)}/memory" in json.dumps(problem) and why in json.dumps(problem), (memory, status, problem)
print(f"# {checked} operators through mappings verified")
PY
