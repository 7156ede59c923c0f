"""Cold compiles: a fresh service with an empty store for every request, the C compiler and verification included; medians, with the stages
from Server-Timing, and the median of the answer's time over that of gcc -O2 -shared alone on the same file right behind it, with verification and
without. usage: cold.py BUILD [ROUNDS]. Prints; judges nothing, since machines differ."""
import json, os, re, statistics, subprocess, sys, tempfile, time, urllib.request
sys.path.append("tests")
from free_port import free_port

build, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
def f(name, *shape): return {"name": name, "dtype": "f32", "shape": list(shape)}
cases = [("MatMul 512x512x512", "host", {"op": "MatMul", "inputs": [f("a", 512, 512), f("b", 512, 512)]}),
         ("MatMul 512x512x512", "nvidia-h200", {"op": "MatMul", "inputs": [f("a", 512, 512), f("b", 512, 512)]}),
         ("Softmax 256x1000", "host", {"op": "Softmax", "inputs": [f("x", 256, 1000)]}),
         ("Conv 64x56x56 3x3", "host", {"op": {"name": "Conv", "attrs": {"pads": [1, 1, 1, 1]}}, "inputs": [f("x", 1, 64, 56, 56), f("w", 64, 64, 3, 3)]})]
def post(url, data, accept):
    return urllib.request.urlopen(urllib.request.Request(url + "/compile", data, {"Content-Type": "application/json", "Accept": accept}))

def alone(url, data, work):
    """Milliseconds of the compiler on the kernel's text, with the target's flags; None: no C compiler makes this target's kernels."""
    spec = json.load(urllib.request.urlopen(url + "/v1/targets/" + json.loads(data)["target"]))
    spec = spec.get("hwspec", spec)
    if spec.get("language") != "c": return None
    with open(work + "/alone.c", "wb") as out: out.write(post(url, data, "text/x-c").read())
    t = time.perf_counter()
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-shared", "-fPIC", *spec.get("flags", []), "alone.c", "-o", "alone.so", "-lm"], cwd=work, check=True)
    return (time.perf_counter() - t) * 1e3

print(f"{'request':<20}{'target':<13}{'median ms':>10}{'min':>7}{'max':>7}{'/ gcc':>7}{'no check':>9}   stages of the median run, ms")
for name, target, body in cases:
    runs, ratios, bare = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as work:
            port = free_port()
            url = f"http://127.0.0.1:{port}"
            d = subprocess.Popen([f"{build}/kilnd", "--listen", f"127.0.0.1:{port}", "--data", work, "--hwspecs", "hwspecs"], stderr=subprocess.DEVNULL)
            try:
                for _ in range(100):
                    try: urllib.request.urlopen(url + "/readyz", timeout=2); break
                    except Exception: time.sleep(0.05)
                data = json.dumps(dict(body, target=target)).encode()
                t = time.perf_counter()
                r = post(url, data, "application/json")
                r.read()
                took = (time.perf_counter() - t) * 1e3
                runs.append((took, r.headers["Server-Timing"]))
                gcc = alone(url, data, work)
                check = float(re.search(r"verify;dur=([0-9.]+)|$", runs[-1][1]).group(1) or 0)
                if gcc: ratios.append(took / gcc), bare.append((took - check) / gcc)
            finally:
                d.terminate(); d.wait()
    runs.sort()
    ms, timing = runs[len(runs) // 2]
    stages = " ".join(f"{n} {float(v):.1f}" for n, v in re.findall(r"(\w+);dur=([0-9.]+)", timing) if n not in ("total", "lookup"))
    print(f"{name:<20}{target:<13}{statistics.median(x for x, _ in runs):>10.0f}{runs[0][0]:>7.0f}{runs[-1][0]:>7.0f}"
          + "".join(f"{statistics.median(x):>{n}.2f}" if x else " " * n for x, n in ((ratios, 7), (bare, 9))) + f"   {stages}", flush=True)
