"""Whole models against onnxruntime, OpenVINO (f32) and PyTorch's Inductor (weights frozen), in turns in one process, by batch and threads.
Usage: bench_models.py BUILD [--rounds N] [--threads 1,2] [--batch 1,8] [--only NAME,...] [--magika FILE] [--peers NAME,...] [FILE.onnx ...]
Models: those of NAMES, made by zoo.py; files of one's own instead. Needs onnx, onnxruntime and numpy; openvino and torch are peers where installed.
With one thread the processor's time of the process counts, with more the clock. ratio: in each round the best peer's time by Kiln's, the median;
over 1 Kiln is faster. difference: the largest from onnxruntime's output, by the largest magnitude."""
import argparse, math, os, shutil, subprocess, sys, tempfile, time
sys.path.append("tests")
from free_port import free_port

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "..", "api", "python"), here]
import numpy as np
import onnxruntime
import kiln
import zoo
from kiln.native import Pool

NAMES = ["resnet50", "shufflenet", "mobilenet", "minilm16", "minilm128"]
DTYPES = {"f32": "f4", "i32": "i4", "i64": "i8"}


def onnxruntime_peer(path, threads, shapes):
    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads, o.inter_op_num_threads, o.log_severity_level = threads, 1, 4
    s = onnxruntime.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    return lambda feed: s.run(None, feed)


def openvino_peer(path, threads, shapes):
    import openvino
    core = openvino.Core()
    m = core.read_model(path)
    m.reshape({n: list(s) for n, s in shapes.items()})
    c = core.compile_model(m, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
    return lambda feed: list(c(feed).values())


def inductor_peer(path, threads, shapes):
    import torch_peer
    return torch_peer.inductor(path, threads)


PEERS = {"onnxruntime": onnxruntime_peer, "openvino": openvino_peer, "inductor": inductor_peer}


def peers_of(path, threads, shapes, feed, names):
    """Those that are installed and take the model; why the others do not."""
    runs, why = {}, []
    for name in names:
        try:
            run = PEERS[name](path, threads, shapes)
            run(feed)
            runs[name] = run
        except ImportError:
            pass
        except Exception as e:  # a model that a peer refuses is no reason to leave out the others
            why.append(f"{name}: {type(e).__name__} {str(e).splitlines()[0][:80] if str(e) else ''}")
    return runs, why


def measure(runs, feed, rounds, threads):
    clock = time.process_time if threads == 1 else time.perf_counter
    times, last = {n: [] for n in runs}, {}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            run(feed)
            begin = clock()
            last[name] = run(feed)
            if turn:
                times[name].append((clock() - begin) * 1e3)
    return times, last


def compare(name, path, model, batch, threads, a):
    shapes = {x["name"]: x["shape"] for x in model.manifest["inputs"]}
    r = np.random.default_rng(1)
    feed = {x["name"]: (r.random(x["shape"]) if x["dtype"] == "f32" else r.integers(0, 256, x["shape"])).astype(DTYPES[x["dtype"]])
            for x in model.manifest["inputs"]}
    runs, why = peers_of(path, threads, shapes, feed, a.peers.split(","))
    pool = Pool(threads, os.path.abspath(a.build + "/libkiln-client.so")) if threads > 1 else None
    outputs = lambda y: list(y) if isinstance(y, (list, tuple)) else [y]
    times, last = measure({"kiln": lambda f: outputs(model(*f.values(), pool=pool)), **runs}, feed, a.rounds, threads)
    if pool:
        pool.close()
    mid = {n: sorted(t)[len(t) // 2] for n, t in times.items()}
    pairs = sorted(min(times[n][i] for n in runs) / times["kiln"][i] for i in range(a.rounds))
    ratio = pairs[len(pairs) // 2]
    least = min(min(times[n]) for n in runs) / min(times["kiln"])
    off = max(float(np.max(np.abs(x - y)) / max(float(np.max(np.abs(y))), 1e-30)) for x, y in zip(last["kiln"], last["onnxruntime"]))
    print(f"| {name} | {batch} | {threads} | {mid['kiln']:.2f} | " + " | ".join(f"{mid[n]:.2f}" if n in mid else "-" for n in PEERS) +
          f" | {ratio:.2f} | {least:.2f} | {off:.1g} |" + "".join(" " + w for w in why), flush=True)
    return ratio


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--threads", default="1,2")
    p.add_argument("--batch", default="1,8")
    p.add_argument("--only", default="")
    p.add_argument("--magika", default="")
    p.add_argument("--peers", default=",".join(PEERS))
    p.add_argument("files", nargs="*")
    a = p.parse_args()
    work = tempfile.mkdtemp()
    port = free_port()
    daemon = subprocess.Popen([a.build + "/kilnd", "--listen", f"127.0.0.1:{port}", "--data", work, "--hwspecs", "hwspecs", "--socket", "none"],
                              stderr=open(work + "/log", "w"))
    client = kiln.Client(f"http://127.0.0.1:{port}", cache=work + "/cache", timeout=1800)
    batches = [int(b) for b in a.batch.split(",")]
    names = [n for n in a.only.split(",") if n] or NAMES + (["magika"] if a.magika else [])
    cases = [(os.path.basename(f)[:-5], 0, f) for f in a.files] or [(n, b, a.magika if n == "magika" else None) for n in names for b in batches]
    ratios = []
    try:
        for _ in range(200):
            try:
                client.transport.call("GET", "/readyz")
                break
            except kiln.Error:
                time.sleep(0.1)
        print("| model | batch | threads | Kiln ms | " + " | ".join(PEERS) + " | ratio | of the least times | difference |\n" + "| --- " * (7 + len(PEERS)) + "|")
        for name, batch, path in cases:
            path = path or zoo.make(name, batch, work)
            model = client.compile_onnx(path, **({"dims": {"bytes": (batch, 2048)}} if name == "magika" else {}))
            for threads in map(int, a.threads.split(",")):
                ratios.append(compare(name, path, model, batch or "-", threads, a))
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(work, ignore_errors=True)
    print(f"geometric mean of {len(ratios)} ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, least {min(ratios):.2f}")


main()
