"""Every operator, on every path: posts requests to a kilnd of its own and expects a checked kernel.
usage: operators.py [short|full]
  every operator table's rows (tests/data/op_tables.csv) at reduced size for the host, and of every family one of prime size, and one for
  nvidia-h200; cases of tests/data/ops_golden.txt and larger ones, for the host (run) and nvidia-h200 (emulated); the 119 operators of
  tests/data/roller_ops.csv (ROLLER OSDI'22) for the host with batch 1 and sizes cut to fit, and constructed for nvidia-v100 as given.
short takes samples: a shape and a prime-sized one of every family, every second case; full takes all. Prints one line a failure and closes
with the counts."""
import concurrent.futures, csv, json, os, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request
sys.path.append("tests")
from free_port import free_port
import op_tables

full = len(sys.argv) > 1 and sys.argv[1] == "full"
build = os.environ.get("KILN_BUILD", "build")
work = tempfile.mkdtemp()
port = free_port()
url = f"http://127.0.0.1:{port}"
daemon = subprocess.Popen([f"{build}/kilnd", "--listen", f"127.0.0.1:{port}", "--data", work, "--hwspecs", "hwspecs"], stderr=open(work + "/log", "w"))
passed = failed = 0
counting = threading.Lock()

def call(body, timeout=120):
    data = json.dumps(body).encode()
    try:
        r = urllib.request.urlopen(urllib.request.Request(url + "/v1/compile", data, {"Content-Type": "application/json", "Prefer": "wait=100"}), timeout=timeout)
        return r.status, json.load(r)
    except urllib.error.HTTPError as e:
        text = e.read().decode(errors="replace")
        try: return e.code, json.loads(text)
        except ValueError: return e.code, {"detail": text}
    except Exception as e:
        return 0, {"detail": repr(e)}

def expect(name, body, verification):
    global passed, failed
    t = time.time()
    status, a = call(body)
    if status == 202:  # long: ask again for the same
        for _ in range(60):
            time.sleep(1)
            status, a = call(body)
            if status != 202: break
    got = a.get("quality", {}).get("verification") if status == 200 else None
    good = status == 200 and got in verification
    if good and "emulated" in verification and os.environ.get("KILN_NVRTC"):
        good = any(x["kind"] == "cubin" for x in a["artifacts"]) # text that NVRTC refuses leaves the source alone
    with counting:
        passed, failed = passed + good, failed + (not good)
    if good: return a
    print(f"FAIL {name}: {status} {got} {a.get('type', '')} {a.get('pointer', '')} {a.get('detail', '')[:300]} {json.dumps(a.get('verification', ''))[:300]} ({time.time() - t:.1f} s)", flush=True)

def f(name, *shape, dtype="f32"): return {"name": name, "dtype": dtype, "shape": list(shape)}
def op(name, inputs, **attrs): return {"op": {"name": name, "attrs": attrs}, "inputs": inputs}

extra = [
    op("MatMul", [f("a", 127, 311), f("b", 311, 257)]), op("MatMul", [f("a", 1, 512), f("b", 512, 1000)]),
    op("MatMul", [f("a", 4, 6, 33, 20), f("b", 4, 6, 20, 65)]), op("MatMul", [f("a", 64, 96, dtype="f64"), f("b", 96, 40, dtype="f64")]),
    op("MatMul", [f("a", 64, 96, dtype="f16"), f("b", 96, 40, dtype="f16")]), op("MatMul", [f("a", 33, 65, dtype="bf16"), f("b", 65, 70, dtype="bf16")]),
    op("MatMul", [f("a", 20, 30, dtype="i32"), f("b", 30, 17, dtype="i32")]),
    op("Gemm", [f("a", 64, 100), f("b", 72, 100), f("c", 72)], transB=1, alpha=0.5, beta=2.0),
    op("Conv", [f("x", 1, 16, 28, 28), f("w", 32, 16, 3, 3), f("b", 32)], pads=[1, 1, 1, 1]),
    op("Conv", [f("x", 2, 32, 29, 29), f("w", 32, 1, 5, 5)], group=32, pads=[2, 2, 2, 2], strides=[2, 2]),
    op("Conv", [f("x", 1, 16, 40), f("w", 24, 16, 3)], dilations=[2]),
    op("Softmax", [f("x", 100, 1000)]), op("Softmax", [f("x", 4, 21, 7, 7)], axis=1), op("LayerNormalization", [f("x", 33, 768), f("g", 768), f("b", 768)]),
    op("ReduceSum", [f("x", 64, 1000)], axes=[1]), op("ReduceMean", [f("x", 500, 33)], axes=[0]), op("ReduceMax", [f("x", 3, 77, 5)]),
    op("Gelu", [f("x", 1001)]), op("Sigmoid", [f("x", 77, 3, dtype="f16")]), op("Tanh", [f("x", 1 << 16)]), op("Add", [f("x", 100, 1, 33), f("y", 7, 33)]),
    op("Transpose", [f("x", 130, 70)]), op("Transpose", [f("x", 5, 30, 20, 9)], perm=[0, 2, 3, 1]), op("MaxPool", [f("x", 1, 19, 56, 56)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    op("AveragePool", [f("x", 1, 19, 28, 28)], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    {"expr": "s[B,H,Q,S] +=! q[B,H,Q,D]*k[B,H,S,D] * 0.125; m[B,H,Q] >=! s[B,H,Q,S]; e[B,H,Q,S] = exp(s[B,H,Q,S]-m[B,H,Q]); z[B,H,Q] +=! e[B,H,Q,S]; o[B,H,Q,D] +=! e[B,H,Q,S]*v[B,H,S,D]/z[B,H,Q]",
     "inputs": {"q": "f32[1,2,33,16]", "k": "f32[1,2,40,16]", "v": "f32[1,2,40,16]"}},
    {"expr": "y[I,C] = table[idx[I],C]", "inputs": {"table": "f32[100,37]", "idx": "i32[21]"}},
    {"expr": "y[N,F] = select(F<20, a[N,F], b[N,F-20]) where F in 50", "inputs": {"a": "f32[7,20]", "b": "f32[7,30]"}},
    {"expr": "y[A,B] = x[A, B//8, B%8] where B in 96", "inputs": {"x": "f32[10,12,8]"}},
    {"expr": "c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "inputs": {"a": "i8[33,70]", "b": "i8[70,50]"}},
]

def roller_request(r, batch):
    p = dict(x.split("=") for x in r["params"].split(";"))
    i = lambda k: int(p[k])
    tail = r["artifact_expr"].rsplit("_", 1)[-1]
    import re
    n = {k: int(v) for k, v in re.findall(r"([SDP])(\d+)", tail)} if "_S" in r["artifact_expr"] else {}
    s, d, pad, o = n.get("S", 1), n.get("D", 1), n.get("P", 0), r["op"]
    size = lambda out, k: (out - 1) * s + (k - 1) * d + 1 - 2 * pad
    window = dict(strides=[s, s], pads=[pad] * 4)
    if o == "matmul": return op("MatMul", [f("a", i("M") if batch is None else min(i("M"), 256), i("K")), f("b", i("K"), i("N"))])
    if o == "relu": return op("Relu", [f("x", i("flat") if batch is None else max(i("flat") // 128, 1))])
    if o == "reduce_sum": return op("ReduceSum", [f("x", i("outer") if batch is None else max(i("outer") // 128, 1), i("inner"))], axes=[1], keepdims=0)
    b = i("N") if batch is None else batch
    if o == "conv2d": return op("Conv", [f("x", b, i("C"), size(i("HO"), i("KH")), size(i("WO"), i("KW"))), f("w", i("F"), i("C"), i("KH"), i("KW"))], **window)
    if o == "depthwise_conv2d": return op("Conv", [f("x", b, i("C"), size(i("HO"), i("KH")), size(i("WO"), i("KW"))), f("w", i("C"), 1, i("KH"), i("KW"))], group=i("C"), **window)
    if o == "avg_pool2d": return op("AveragePool", [f("x", b, i("C"), size(i("HO"), i("K")), size(i("WO"), i("K")))], kernel_shape=[i("K")] * 2, **window)

def construct_v100(name, body):
    global passed, failed
    r = subprocess.run([f"{build}/kiln", "construct", "-", "--target", "nvidia-v100", "--json", "-k", "3"], input=json.dumps(dict(body, target="nvidia-v100")), capture_output=True, text=True)
    good = r.returncode == 0 and json.loads(r.stdout)["candidates"]
    if good: passed += 1
    else:
        failed += 1
        print(f"FAIL construct {name} for nvidia-v100: {r.stderr.strip()[:300]}", flush=True)

def table_cases():
    """(name, request, what verification must say) of the tables' rows; equal requests once."""
    seen, found, families = set(), [], set()
    def add(row, kind, body, how):
        text = json.dumps(body, sort_keys=True)
        if text in seen: return
        seen.add(text)
        found.append((f"{kind} {row['table']} {row['family']} {row['id']} {text[:200]}", body, how))
    for row in op_tables.rows():
        new = row["family"] not in families
        families.add(row["family"])
        kinds = [("host", op_tables.cut, "host", "run"), ("prime", op_tables.prime, "host", "run"), ("h200", op_tables.cut, "nvidia-h200", "emulated")]
        for kind, size, target, how in kinds if new else kinds[:full]:
            for body in op_tables.requests(row, size): add(row, kind, dict(body, target=target, quality="verified"), how)
    return found

def expect_all(cases):
    with concurrent.futures.ThreadPoolExecutor(2) as pool: list(pool.map(lambda c: expect(c[0], c[1], (c[2],)), cases))

try:
    for _ in range(100):
        try: urllib.request.urlopen(url + "/readyz", timeout=2); break
        except Exception: time.sleep(0.1)
    cases = [json.loads(l[5:]) for l in open("tests/data/ops_golden.txt") if l.startswith("case ")] + extra
    if not full: cases = cases[::2]
    expect_all([(f"{target} {json.dumps(c)[:160]}", dict(c, target=target, quality="verified"), how)
                for c in cases for target, how in (("host", "run"), ("nvidia-h200", "emulated"))])
    print(f"# cases: {passed} passed, {failed} failed", flush=True)
    expect_all(table_cases())
    rows = [r for r in csv.DictReader(open("tests/data/roller_ops.csv")) if r["suite"] == "osdi22-119"]
    print(f"# and tables: {passed} passed, {failed} failed", flush=True)
    for r in rows if full else rows[::9]:
        expect(f"host {r['id']} {r['op']} {r['params']}", dict(roller_request(r, 1), target="host"), ("run",))
        construct_v100(r["id"], roller_request(r, None))
finally:
    daemon.terminate()
    daemon.wait(30)
print(f"operators: {passed} passed, {failed} failed")
if failed: print(open(work + "/log").read()[-1500:])
sys.exit(failed != 0)
