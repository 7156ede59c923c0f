"""Whole models against onnxruntime and OpenVINO (f32), in turns in one process: medians of interleaved rounds, by threads and batch.
Usage: bench_models.py BUILD [--rounds N] [--threads 1,2] [FILE.onnx ...]; default: CNNs of the onnx wheel. Needs onnx, onnxruntime and numpy; openvino
is a peer where it is installed. ratio: the best peer's time by Kiln's; over 1 Kiln is faster."""
import argparse, math, os, shutil, subprocess, sys, tempfile, time
sys.path.append("tests")
from free_port import free_port

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "api", "python"))
import numpy as np
import onnx
import onnxruntime
import kiln
from kiln.native import Pool

p = argparse.ArgumentParser()
p.add_argument("build")
p.add_argument("--rounds", type=int, default=9)
p.add_argument("--threads", default="1,2")
p.add_argument("files", nargs="*")
a = p.parse_args()
light = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
files = a.files or [f"{light}/light_{n}.onnx" for n in ("resnet50", "shufflenet", "squeezenet", "densenet121")]
DTYPES = {"f32": "f4", "i32": "i4", "i64": "i8"}


def onnxruntime_peer(path, threads):
    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads, o.inter_op_num_threads, o.log_severity_level = threads, 1, 4
    s = onnxruntime.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    return lambda feed: s.run(None, feed)


def openvino_peer(path, threads):
    import openvino
    m = openvino.Core().compile_model(path, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"})
    return lambda feed: m(feed)


work = tempfile.mkdtemp()
port = free_port()
daemon = subprocess.Popen([a.build + "/kilnd", "--listen", f"127.0.0.1:{port}", "--data", work, "--hwspecs", "hwspecs"], stderr=open(work + "/log", "w"))
client = kiln.Client(f"http://127.0.0.1:{port}", cache=work + "/cache", timeout=900)
ratios = []
try:
    for _ in range(200):
        try:
            client.transport.call("GET", "/readyz")
            break
        except kiln.Error:
            time.sleep(0.1)
    models = {}
    for path in files:
        begin = time.time()
        models[path] = client.compile_onnx(path)
        print(f"# {os.path.basename(path)}: compiled in {time.time() - begin:.1f} s, {len(models[path].manifest['kernels'])} kernels", flush=True)
    print(f"{'model':22}{'threads':>8}{'kiln ms':>10}{'peers (ms)':>40}{'ratio':>8}")
    for path, model in models.items():
        r = np.random.default_rng(1)
        feed = {x["name"]: (r.random(x["shape"]).astype(DTYPES[x["dtype"]])) for x in model.manifest["inputs"]}
        for threads in map(int, a.threads.split(",")):
            pool = Pool(threads, os.path.abspath(a.build + "/libkiln-client.so")) if threads > 1 else None
            runs = {"kiln": lambda feed: model(*feed.values(), pool=pool), "onnxruntime": onnxruntime_peer(path, threads)}
            try:
                runs["openvino"] = openvino_peer(path, threads)
            except ImportError:
                pass
            times = {name: [] for name in runs}
            for turn in range(a.rounds + 2):
                for name, run in runs.items():
                    begin = time.perf_counter()
                    run(feed)
                    if turn >= 2:
                        times[name].append((time.perf_counter() - begin) * 1e3)
            ms = {name: sorted(t)[len(t) // 2] for name, t in times.items()}
            ratio = min(v for k, v in ms.items() if k != "kiln") / ms["kiln"]
            ratios.append(ratio)
            peers = ", ".join(f"{k} {v:.2f}" for k, v in ms.items() if k != "kiln")
            print(f"{os.path.basename(path)[:-5]:22}{threads:8}{ms['kiln']:10.2f}{peers:>40}{ratio:8.2f}", flush=True)
            if pool:
                pool.close()
finally:
    daemon.terminate()
    daemon.wait()
    shutil.rmtree(work, ignore_errors=True)
print(f"geometric mean of {len(ratios)} ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, least {min(ratios):.2f}")
