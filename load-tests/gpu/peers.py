"""PyTorch (cuBLAS, cuDNN and its own kernels) beside what a bundle's runner measured, on a host with a GPU.
usage: peers.py CASES.jsonl RESULTS.jsonl [--json FILE] [--compile]; peers.py CASES.jsonl --requests writes what `make gpu-bundle REQUESTS=` takes
A case has a name, the compile request and the same computation in PyTorch's words over x, the list of inputs. Calls are captured in a graph over sets of
inputs that together are three times the L2, as the runner rotates them, so that no launch is waited for and none finds its data in a cache; random data,
medians. --compile: torch.compile (Inductor) too. The table: microseconds of the first candidate, of the fastest, of PyTorch, and the ratios."""
import argparse, json, math, statistics, sys

if "--requests" not in sys.argv:  # these are written where there is no PyTorch
    import torch
    import torch.nn.functional as F

    DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8, "f8e4m3": torch.float8_e4m3fn, "f64": torch.float64}
ROUNDS, BATCH_MS, SETS_BYTES, MOST_SETS = 7, 10, 3 * 60 << 20, 64


def tensor(spec, generator):
    dtype = DTYPES[spec["dtype"]]
    shape = spec["shape"]
    if dtype == torch.int8:
        return torch.randint(-8, 8, shape, dtype=dtype, device="cuda", generator=generator)
    return (torch.rand(shape, device="cuda", generator=generator) * 2 - 1).to(dtype)


def input_sets(request):
    generator = torch.Generator("cuda").manual_seed(1)
    first = [tensor(spec, generator) for spec in request["inputs"]]
    size = sum(t.numel() * t.element_size() for t in first)
    more = min(MOST_SETS, max(2, math.ceil(SETS_BYTES / max(size, 1)))) - 1
    return [first] + [[t.clone() for t in first] for _ in range(more)]


def graph_of(call, sets):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for s in sets[:2] * 2:
            call(s)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for s in sets:
            call(s)
    return graph


def milliseconds(graph, n):
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    for _ in range(n):
        graph.replay()
    b.record()
    b.synchronize()
    return a.elapsed_time(b)


def time_us(call, request):
    sets = input_sets(request)
    graph = graph_of(call, sets)
    milliseconds(graph, 2)
    n = max(1, round(BATCH_MS / max(milliseconds(graph, 1), 1e-3)))
    return 1000 * statistics.median(milliseconds(graph, n) for _ in range(ROUNDS)) / (n * len(sets))


def caller(text):
    one = torch.tensor(1.0, device="cuda")
    code = compile(text, text, "eval")
    return lambda x: eval(code, {"torch": torch, "F": F, "x": x, "one": one})


def peer_us(case, compiled):
    call = caller(case["torch"])
    if compiled:
        names = [f"x{i}" for i in range(len(case["request"]["inputs"]))]
        scope = {"torch": torch, "F": F, "one": torch.tensor(1.0, device="cuda")}
        exec(f"def f({', '.join(names)}):\n    x = ({', '.join(names)},)\n    return {case['torch']}", scope)
        torch._dynamo.reset()
        fast = torch.compile(scope["f"], dynamic=False)
        call = lambda x: fast(*x)
    try:
        return time_us(call, case["request"])
    except Exception as e:
        print(f"# {case['name']}: {type(e).__name__}: {str(e).splitlines()[0][:150]}", flush=True)
        return math.nan


def measured(path):
    """The candidates of each group in the order of the requests: groups are numbered."""
    groups = {}
    for line in open(path):
        row = json.loads(line)
        if "kernel" in row:
            groups.setdefault(row["group"], []).append(row)
    return groups


def main():
    p = argparse.ArgumentParser()
    p.add_argument("cases")
    p.add_argument("results", nargs="?")
    p.add_argument("--requests", action="store_true")
    p.add_argument("--json")
    p.add_argument("--compile", action="store_true")
    args = p.parse_args()
    cases = [json.loads(line) for line in open(args.cases) if line.strip()]
    if args.requests:
        print("\n".join(json.dumps(case["request"]) for case in cases))
        return
    groups = measured(args.results)
    rows, ratios, firsts = [], [], []
    print(f"{'case':<40} {'first us':>9} {'best us':>9} {'rank':>4} {'torch us':>9} {'inductor':>9} {'peer/best':>9} {'first/best':>10}")
    for number, case in enumerate(cases):
        mine = groups.get(f"g{number}", [])
        good = [r for r in mine if r["status"] == "ok"]
        bad = sorted({r["status"] for r in mine if r["status"] != "ok"})
        torch_us = peer_us(case, False)
        fast_us = peer_us(case, True) if args.compile else math.nan
        peer = min([u for u in (torch_us, fast_us) if u == u], default=math.nan)
        best = min(good, key=lambda r: r["us"]) if good else None
        first = min(good, key=lambda r: r["rank"]) if good else None
        row = dict(name=case["name"], torch_us=torch_us, inductor_us=fast_us, bad=bad, best_us=best["us"] if best else math.nan,
                   first_us=first["us"] if first else math.nan, rank=best["rank"] if best else -1)
        rows.append(row)
        if best and peer == peer:
            ratios.append(peer / row["best_us"])
        if best:
            firsts.append(row["first_us"] / row["best_us"])
        print(f"{case['name']:<40} {row['first_us']:>9.1f} {row['best_us']:>9.1f} {row['rank']:>4} {torch_us:>9.1f} {fast_us:>9.1f} "
              f"{peer / row['best_us']:>9.2f} {row['first_us'] / row['best_us']:>10.2f} {' '.join(bad)}", flush=True)
        torch.cuda.empty_cache()
    geomean = lambda xs: math.exp(statistics.mean(map(math.log, xs))) if xs else math.nan
    print(f"{len(cases)} cases, {len(ratios)} beside PyTorch on {torch.cuda.get_device_name()}: geometric mean {geomean(ratios):.2f} of PyTorch's time, "
          f"least {min(ratios, default=math.nan):.2f}, first / best {geomean(firsts):.3f}")
    if args.json:
        json.dump(rows, open(args.json, "w"), indent=1)


main()
