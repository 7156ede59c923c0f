"""Every mapping of ResNet-18's convolutions (batch 1) onto one instruction, compiled, verified and timed on one thread, in interleaved rounds: the best of
all against the best one that is the same for every layer, and how the predicted order agrees: pairs in order, and how much slower than the best the
mapping is that is predicted to be the best. LAYERS=0,4 takes some of them; ROUNDS, RUNS: how often each is timed, the least time counts.
usage: layers.py BUILD TARGET INSTRUCTION"""
import itertools, json, math, os, subprocess, sys, tempfile, time, urllib.request
sys.path.append("tests")
from free_port import free_port

build, target, instruction = sys.argv[1:4]
rounds, runs = int(os.environ.get("ROUNDS", 3)), os.environ.get("RUNS", "15")
# channels, height and width, filters, kernel, stride, padding
layers = [(3, 224, 64, 7, 2, 3), (64, 56, 64, 3, 1, 1), (64, 56, 64, 1, 1, 0), (64, 56, 128, 3, 2, 1), (64, 56, 128, 1, 2, 0), (128, 28, 128, 3, 1, 1),
          (128, 28, 256, 3, 2, 1), (128, 28, 256, 1, 2, 0), (256, 14, 256, 3, 1, 1), (256, 14, 512, 3, 2, 1), (256, 14, 512, 1, 2, 0), (512, 7, 512, 3, 1, 1)]
chosen = [int(i) for i in os.environ.get("LAYERS", ",".join(map(str, range(12)))).split(",")]
letter = {"S0": "n", "S1": "k", "S2": "p", "S3": "q", "R0": "c", "R1": "r", "R2": "s"}

def kiln(verb, args, *more):
    out = subprocess.run([f"{build}/kiln", verb, *args, *more, "--json"], capture_output=True, text=True)
    if out.returncode: raise RuntimeError(out.stderr.strip().splitlines()[0])
    return json.loads(out.stdout)

def key(mapping): # "I=S0,S2 R=R0" -> "np|c"
    return "|".join("".join(letter[l] for l in axis.split("=")[1].split(",")) for axis in mapping.split())

def measure(number, work):
    c, hw, k, r, stride, pad = layers[number]
    types = ("u8", "i8") if instruction == "vpdpbusd" else ("f32", "f32")
    args = ["ConvInteger" if types[0] == "u8" else "Conv", f"x={types[0]}:1x{c}x{hw}x{hw}", f"w={types[1]}:{k}x{c}x{r}x{r}",
            "--attr", f"pads={pad},{pad},{pad},{pad}", "--attr", f"strides={stride},{stride}"]
    found, failed = {}, []
    for result in kiln("mappings", args, "--target", target, "--intrinsic", instruction)["results"]:
        for m in result.get("mappings", []):
            # a mapping that computes eight iterations for one wanted is nobody's choice; it would take the time of all others
            if m.get("padding", 9) < 8: found[key(m["mapping"])] = {"predicted": m["predicted_us"], "trace": m["trace"], "us": []}
    for name, _ in itertools.product(found, range(rounds)): found[name]["us"].append(None)
    for turn in range(rounds):
        for name, m in found.items():
            with open(f"{work}/trace", "w") as f: f.write(m["trace"])
            try: m["us"][turn] = kiln("run", args, "--target", target, "--trace", f"{work}/trace", "--threads", "1", "--runs", runs)["best_us"]
            except RuntimeError as e: failed.append(f"{name}: {e}")
    times = {n: min(m["us"]) for n, m in found.items() if None not in m["us"]}
    pairs = [(times[x] < times[y]) == (found[x]["predicted"] < found[y]["predicted"]) for x, y in itertools.combinations(times, 2)
             if found[x]["predicted"] != found[y]["predicted"]]
    best, guess = min(times, key=times.get), min(times, key=lambda n: found[n]["predicted"])
    regret = times[guess] / times[best]
    print(f"{number:>2} {c:>4} {hw:>4} {k:>4} {r}x{r}/{stride}  best {best:<8} {times[best]:>9.0f} us, worst {max(times.values()):>9.0f}, "
          f"predicted order right in {sum(pairs)} of {len(pairs)} pairs, predicted best {guess} {regret:.2f}x", *failed, sep="\n   " if failed else "  ", flush=True)
    return times, pairs, r, regret

with tempfile.TemporaryDirectory() as work:
    port = free_port()
    os.environ["KILN_URL"] = f"http://127.0.0.1:{port}"
    daemon = subprocess.Popen([f"{build}/kilnd", "--listen", f"127.0.0.1:{port}", "--data", work, "--hwspecs", "hwspecs"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try: urllib.request.urlopen(os.environ["KILN_URL"] + "/readyz", timeout=2); break
            except Exception: time.sleep(0.05)
        results = [measure(i, work) for i in chosen]
    finally:
        daemon.terminate(); daemon.wait()

def at(times, r, name): # the same mapping in a layer of 1x1 kernels, which has no loops r and s
    return times.get(name if r > 1 else "".join(l for l in name if l not in "rs").rstrip("|"))
geomean = lambda xs: math.exp(sum(map(math.log, xs)) / len(xs))
fixed = {n: geomean([at(t, r, n) for t, _, r, _ in results]) for n in {n for t, *_ in results for n in t} if all(at(t, r, n) for t, _, r, _ in results)}
best, everywhere = geomean([min(t.values()) for t, *_ in results]), min(fixed, key=fixed.get)
pairs = [p for _, ps, *_ in results for p in ps]
print(f"{instruction}: best of all {best:.0f} us, best one for every layer ({everywhere}) {fixed[everywhere]:.0f} us: {fixed[everywhere] / best:.2f}x; "
      f"{len({min(t, key=t.get) for t, *_ in results})} mappings chosen; predicted order right in {sum(pairs) / max(len(pairs), 1):.2f} of the pairs, the predicted best {geomean([r[3] for r in results]):.2f}x the best")
