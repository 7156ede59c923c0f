"""Every mapping of ResNet-18's convolutions (batch 1) onto an instruction, or onto all forms of one, compiled, verified and timed on one thread: the best
of all against the best one that is the same for every layer, and how the predicted order agrees: pairs in order, and how much slower than the best the
mapping is that is predicted to be the best. A first round times all mappings; further ones, interleaved, those that may be the best of a layer or the best
for every layer. The least time counts.
LAYERS=0,4 takes some of the layers; MAPPINGS="k|q|c,k|pq|crs" these mappings only; ROUNDS, RUNS: rounds beside the first, runs in each; TIMES=FILE keeps
the times there, those of other layers too, or takes those that are; DATA=DIR keeps the kernels, so that a later call measures only.
usage: layers.py BUILD TARGET INSTRUCTION[,INSTRUCTION]"""
import csv, itertools, json, math, os, subprocess, sys, tempfile, time, urllib.request
sys.path.append("tests")
from free_port import free_port

build, target, instructions = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
rounds, runs, kept = int(os.environ.get("ROUNDS", 3)), os.environ.get("RUNS", "15"), os.environ.get("TIMES")
only = [n for n in os.environ.get("MAPPINGS", "").split(",") if n]
# what the instruction multiplies: operator, dtypes, and how many iterations a mapping may compute for one wanted; more are nobody's choice, and would
# take the time of all others. Tiles have so many terms that three channels in one of them are still tried.
KINDS = {"vpdpbusd": ("ConvInteger", "u8", "i8", 8), "amx_int8": ("ConvInteger", "u8", "i8", 24), "amx_bf16": ("Conv", "bf16", "bf16", 12),
         "fma_f32": ("Conv", "f32", "f32", 8)}
kind = next(v for k, v in KINDS.items() if instructions[0].startswith(k))
NEAR, FIXED = 1.5, 5 # finalists: what is so near the best of its layer, and so many for every layer
# channels, height and width, filters, kernel, stride, padding
layers = [(3, 224, 64, 7, 2, 3), (64, 56, 64, 3, 1, 1), (64, 56, 64, 1, 1, 0), (64, 56, 128, 3, 2, 1), (64, 56, 128, 1, 2, 0), (128, 28, 128, 3, 1, 1),
          (128, 28, 256, 3, 2, 1), (128, 28, 256, 1, 2, 0), (256, 14, 256, 3, 1, 1), (256, 14, 512, 3, 2, 1), (256, 14, 512, 1, 2, 0), (512, 7, 512, 3, 1, 1)]
chosen = [int(i) for i in os.environ.get("LAYERS", ",".join(map(str, range(12)))).split(",")]
letter = {"S1": "k", "S2": "p", "S3": "q", "R0": "c", "R1": "r", "R2": "s"}
geomean = lambda xs: math.exp(sum(map(math.log, xs)) / len(xs))

def kiln(verb, args, *more):
    out = subprocess.run([f"{build}/kiln", verb, *args, *more, "--json"], capture_output=True, text=True)
    if out.returncode: raise RuntimeError(out.stderr.strip().splitlines()[-1])
    return json.loads(out.stdout)

def key(mapping): # "I=S0,S2,S3 R=R0" -> "pq|c": the batch is 1, with or without it is the same mapping
    return "|".join("".join(letter[l] for l in axis.split("=")[1].split(",") if l != "S0") for axis in mapping.split())

def request(number):
    c, hw, k, r, stride, pad = layers[number]
    return [kind[0], f"x={kind[1]}:1x{c}x{hw}x{hw}", f"w={kind[2]}:{k}x{c}x{r}x{r}",
            "--attr", f"pads={pad},{pad},{pad},{pad}", "--attr", f"strides={stride},{stride}"]

def mappings(number):
    found = {}
    for instruction in instructions:
        for result in kiln("mappings", request(number), "--target", target, "--intrinsic", instruction)["results"]:
            for m in result.get("mappings", []):
                if m.get("padding", kind[3]) >= kind[3]: continue
                name = key(m["mapping"])
                if "" in name.split("|") or not asked(number, name): continue
                if name not in found or m["predicted_us"] < found[name]["predicted"]: # the instruction's form with the operands the other way round
                    found[name] = {"predicted": m["predicted_us"], "trace": m["trace"], "us": math.inf}
    return found

def asked(number, name): # a mapping that MAPPINGS names, or what is left of one in a layer of 1x1 kernels
    plain = ["".join(l for l in n if l not in "rs").rstrip("|") for n in only]
    return not only or name in only or (layers[number][3] == 1 and name in plain)

def measure(number, name, m, work, runs):
    with open(f"{work}/trace", "w") as f: f.write(m["trace"])
    try: m["us"] = min(m["us"], kiln("run", request(number), "--target", target, "--trace", f"{work}/trace", "--threads", "1", "--runs", runs)["best_us"])
    except RuntimeError as e: print(f"   {number} {name}: {e}", flush=True)

def at(found, number, name): # the same mapping in a layer of 1x1 kernels, which has no loops r and s
    m = found.get(name if layers[number][3] > 1 else "".join(l for l in name if l not in "rs").rstrip("|"))
    return m["us"] if m else math.inf

def everywhere(all_found): # the mappings that every layer has, the fastest first
    names = {n for f in all_found.values() for n in f}
    fixed = {n: geomean([at(f, i, n) for i, f in all_found.items()]) for n in names if all(at(f, i, n) < math.inf for i, f in all_found.items())}
    return sorted(fixed.items(), key=lambda x: x[1])

def finalists(all_found):
    common = [n for n, _ in everywhere(all_found)[:FIXED]]
    for number, found in all_found.items():
        least = min(m["us"] for m in found.values())
        yield from ((number, n) for n, m in found.items() if m["us"] <= NEAR * least or any(at(found, number, c) == m["us"] for c in common))

def measure_all(all_found, work):
    for number, found in all_found.items():
        for name, m in found.items(): measure(number, name, m, work, runs)
        print(f"# layer {number}: {len(found)} mappings timed once", flush=True)
    again = list(finalists(all_found))
    for _ in range(rounds):
        for number, name in again: measure(number, name, all_found[number][name], work, runs)

def times_of(all_found, work):
    before = list(csv.reader(open(kept))) if kept and os.path.exists(kept) else []
    for number, name, us in before:
        if int(number) in all_found and name in all_found[int(number)]: all_found[int(number)][name]["us"] = float(us)
    new = {i: f for i, f in all_found.items() if all(m["us"] == math.inf for m in f.values())}
    measure_all(new, work)
    if kept: csv.writer(open(kept, "a")).writerows([i, n, m["us"]] for i, f in new.items() for n, m in f.items() if m["us"] < math.inf)

def report(number, found):
    c, hw, k, r, stride, _ = layers[number]
    known = {n: m for n, m in found.items() if m["us"] < math.inf}
    times = {n: m["us"] for n, m in known.items()}
    pairs = [(times[x] < times[y]) == (known[x]["predicted"] < known[y]["predicted"]) for x, y in itertools.combinations(times, 2)
             if known[x]["predicted"] != known[y]["predicted"]]
    best, guess = min(times, key=times.get), min(times, key=lambda n: known[n]["predicted"])
    print(f"{number:>2} {c:>4} {hw:>4} {k:>4} {r}x{r}/{stride}  best {best:<8} {times[best]:>8.0f} us, worst {max(times.values()):>8.0f} of {len(times):>2}, "
          f"predicted order right in {sum(pairs):>3} of {len(pairs):>3} pairs, predicted best {guess} {times[guess] / times[best]:.2f}x", flush=True)
    return best, times[best], pairs, times[guess] / times[best]

with tempfile.TemporaryDirectory() as work:
    port = free_port()
    os.environ["KILN_URL"] = f"http://127.0.0.1:{port}"
    daemon = subprocess.Popen([f"{build}/kilnd", "--listen", f"127.0.0.1:{port}", "--data", os.environ.get("DATA", work), "--hwspecs", "hwspecs"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if daemon.poll() is not None: sys.exit(f"{build}/kilnd ended with status {daemon.returncode}; start it by hand to see why")
            try: urllib.request.urlopen(os.environ["KILN_URL"] + "/readyz", timeout=2); break
            except Exception: time.sleep(0.05)
        all_found = {i: mappings(i) for i in chosen}
        times_of(all_found, work)
    finally:
        daemon.terminate(); daemon.wait()

rows = [report(i, f) for i, f in all_found.items()]
fixed = everywhere(all_found)
best, pairs = geomean([r[1] for r in rows]), [p for r in rows for p in r[2]]
print("the same for every layer: " + ", ".join(f"{n} {us:.0f} us ({us / best:.2f}x)" for n, us in fixed[:FIXED]))
print(f"{' and '.join(instructions)}: best of all {best:.0f} us, best one for every layer ({fixed[0][0]}) {fixed[0][1]:.0f} us: {fixed[0][1] / best:.2f}x; "
      f"{len({r[0] for r in rows})} mappings chosen; predicted order right in {sum(pairs) / max(len(pairs), 1):.2f} of the pairs, the predicted best "
      f"{geomean([r[3] for r in rows]):.2f}x the best")
