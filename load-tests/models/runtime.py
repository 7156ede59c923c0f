"""One runtime with one model, in a process of its own: bench_models.py starts it and stops it (SIGSTOP) while another has its turn, so that threads
which wait for work in loops wait on nobody else's time. Usage: runtime.py NAME, then on standard input a line of JSON (model, threads, shapes, dtypes, kiln),
then a line with milliseconds a turn. Answers, a line of JSON each: {"ok": file of the first run's outputs} or {"no": why}; then [[wall, processor], ...]
in milliseconds, a pair a run."""
import json, os, sys, tempfile, time
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "..", "api", "python"), here]
DTYPES = {"f32": "f4", "i32": "i4", "i64": "i8", "u8": "u1", "i8": "i1", "bool": "?"}


def kiln_run(ask, feed):
    import kiln
    from kiln.native import Pool
    client = kiln.Client(ask["kiln"]["url"], cache=ask["kiln"]["cache"], timeout=1800)
    model = client.compile_onnx(ask["model"], dims={n: tuple(s) for n, s in ask["dims"].items()})
    pool = Pool(ask["threads"], ask["kiln"]["library"]) if ask["threads"] > 1 else None
    several = len(model.manifest["outputs"]) > 1
    return lambda: list(model(*feed.values(), pool=pool)) if several else [model(*feed.values(), pool=pool)]


def onnxruntime_run(ask, feed):
    import onnxruntime
    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads, o.inter_op_num_threads, o.log_severity_level = ask["threads"], 1, 4
    session = onnxruntime.InferenceSession(ask["model"], o, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed)


def openvino_run(ask, feed):
    import openvino
    core = openvino.Core()
    m = core.read_model(ask["model"])
    m.reshape({n: list(x.shape) for n, x in feed.items()})
    c = core.compile_model(m, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": ask["threads"], "INFERENCE_PRECISION_HINT": "f32"})
    return lambda: list(c(feed).values())


def inductor_run(ask, feed):
    import torch_peer
    run = torch_peer.inductor(ask["model"], ask["threads"])
    return lambda: run(feed)


RUNTIMES = {"kiln": kiln_run, "onnxruntime": onnxruntime_run, "openvino": openvino_run, "inductor": inductor_run}


def turn(run, ms):
    """One run unmeasured, then runs for so long, two at least."""
    run()
    times, end = [], time.perf_counter() + ms / 1e3
    while len(times) < 2 or time.perf_counter() < end:
        wall, processor = time.perf_counter(), time.process_time()
        run()
        times.append(((time.perf_counter() - wall) * 1e3, (time.process_time() - processor) * 1e3))
    return times


def main():
    out = os.fdopen(os.dup(1), "w")  # what a library prints goes elsewhere
    os.dup2(2, 1)

    def say(x):
        print(json.dumps(x), file=out, flush=True)

    ask = json.loads(sys.stdin.readline())
    r = np.random.default_rng(1)
    feed = {n: (r.random(s) if ask["dtypes"][n] == "f32" else r.integers(0, 256, s)).astype(DTYPES[ask["dtypes"][n]]) for n, s in ask["shapes"].items()}
    try:
        run = RUNTIMES[sys.argv[1]](ask, feed)
        first = run()
    except ImportError:
        return say({"no": ""})
    except Exception as e:  # a model that one refuses is no reason to leave out the others
        return say({"no": f"{type(e).__name__} {(str(e).splitlines() or [''])[0][:80]}"})
    file = tempfile.mkstemp(".npz", dir=ask["work"])[1]
    np.savez(file, *first)
    say({"ok": file})
    for line in sys.stdin:
        say(turn(run, float(line)))


main()
