"""Whole models against onnxruntime, OpenVINO (f32) and PyTorch's Inductor (weights frozen), in turns, by batch and threads.
Usage: bench_models.py BUILD [--rounds N] [--threads 1,2] [--batch 1,8] [--only NAME,...] [--magika FILE] [--peers NAME,...] [--work DIR] [FILE.onnx ...]
DIR keeps what was compiled: with --rounds 0 once for all, then model by model in the moments in which a machine has nothing else to do.
Models: those of NAMES, made by zoo.py; files of one's own instead. Needs onnx, onnxruntime and numpy; openvino and torch are peers where installed.
Every runtime is a process of its own (runtime.py) that is stopped while another has its turn of TURN_MS. With one thread the processor's time counts,
with more the clock. ratio: in each round the best peer's median by Kiln's, the median; over 1 Kiln is faster. difference: the largest from
onnxruntime's output (the first peer's), by the largest magnitude."""
import argparse, json, math, os, shutil, signal, subprocess, sys, tempfile, time
sys.path.append("tests")
from free_port import free_port

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "..", "api", "python"), here]
import numpy as np
import kiln
import zoo

NAMES = ["resnet50", "shufflenet", "mobilenet", "minilm16", "minilm128", "efficientnet", "convnext", "vit", "gpt", "unet", "detector",
         "densenet121", "lstm", "gru"]
PEERS = ["onnxruntime", "openvino", "inductor"]
TURN_MS = 60


class Runtime:
    """A process of runtime.py; stopped unless it is asked for times. why: it has none to give, and the reason where there is one."""

    def __init__(self, name, ask):
        self.process = subprocess.Popen([sys.executable, os.path.join(here, "runtime.py"), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": str(ask["threads"])})
        self.name, self.why, self.first = name, None, None
        self.say(json.dumps(ask))

    def wait(self):
        """Until it has run once, which others do meanwhile."""
        got = self.heard()
        if "ok" in got:
            with np.load(got["ok"]) as z:
                self.first = [z[k] for k in z.files]
            os.kill(self.process.pid, signal.SIGSTOP)
        else:
            self.why = got["no"] and f"{self.name}: {got['no']}"
            self.close()

    def say(self, line):
        try:
            print(line, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass

    def heard(self):
        return json.loads(self.process.stdout.readline() or '{"no": "ended"}')

    def times(self):
        os.kill(self.process.pid, signal.SIGCONT)
        self.say(str(TURN_MS))
        got = self.heard()
        os.kill(self.process.pid, signal.SIGSTOP)
        if not isinstance(got, list):
            raise RuntimeError(got["no"])
        return got

    def close(self):
        self.process.kill()
        self.process.wait()


def median(x):
    return sorted(x)[len(x) // 2]


def measure(runs, rounds, threads):
    """By runtime: the median of each round, and the least of all."""
    times = {n: [] for n in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append([t[1 if threads == 1 else 0] for t in run.times()])
    return {n: [median(t) for t in x] for n, x in times.items()}, {n: min(map(min, x)) for n, x in times.items()}


def row(name, batch, threads, runs, a, why):
    mine, peers = runs["kiln"], [n for n in runs if n != "kiln"]
    medians, least = measure(runs, a.rounds, threads)
    ratio = median([min(medians[n][i] for n in peers) / medians["kiln"][i] for i in range(a.rounds)])
    off = max(float(np.max(np.abs(x.astype("f8") - y)) / max(float(np.max(np.abs(y))), 1e-30)) for x, y in zip(mine.first, runs[peers[0]].first))
    print(f"| {name} | {batch} | {threads} | {median(medians['kiln']):.2f} | " +
          " | ".join(f"{median(medians[n]):.2f}" if n in runs else "-" for n in PEERS) +
          f" | {ratio:.2f} | {min(least[n] for n in peers) / least['kiln']:.2f} | {off:.1g} |" + "".join(" " + w for w in why), flush=True)
    return ratio


def compare(name, path, dims, manifest, batch, threads, a, work, service):
    """The row's ratio; None where there is nothing to compare with."""
    ask = {"model": os.path.abspath(path), "threads": threads, "work": work, "kiln": service, "dims": dims,
           "shapes": {x["name"]: x["shape"] for x in manifest["inputs"]}, "dtypes": {x["name"]: x["dtype"] for x in manifest["inputs"]}}
    runs, why, started = {}, [], [Runtime(n, ask) for n in ["kiln"] + a.peers.split(",")]
    try:
        for r in started:
            r.wait()
            if r.first is not None:
                runs[r.name] = r
            elif r.why:
                why.append(r.why)
        if not a.rounds:
            return None
        if "kiln" in runs and len(runs) > 1:
            return row(name, batch, threads, runs, a, why)
        print(f"{name}: nothing to compare. {' '.join(why)}", flush=True)
        return None
    finally:
        for r in started:
            r.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--threads", default="1,2")
    p.add_argument("--batch", default="1,8")
    p.add_argument("--only", default="")
    p.add_argument("--magika", default="")
    p.add_argument("--peers", default=",".join(PEERS))
    p.add_argument("--work", default="")
    p.add_argument("files", nargs="*")
    a = p.parse_args()
    work = a.work or tempfile.mkdtemp()
    os.makedirs(work, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = work + "/inductor"
    port = free_port()
    daemon = subprocess.Popen([a.build + "/kilnd", "--listen", f"127.0.0.1:{port}", "--data", work, "--hwspecs", "hwspecs", "--socket", "none"],
                              stderr=open(work + "/log", "w"))
    service = {"url": f"http://127.0.0.1:{port}", "cache": work + "/cache", "library": os.path.abspath(a.build + "/libkiln-client.so")}
    client = kiln.Client(service["url"], cache=service["cache"], timeout=1800)
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
            dims = {"bytes": (batch, 2048)} if name == "magika" else {}
            manifest = client.compile_onnx(path, dims=dims).manifest
            for threads in map(int, a.threads.split(",")):
                ratios.append(compare(name, path, dims, manifest, batch or "-", threads, a, work, service))
    finally:
        daemon.terminate()
        daemon.wait()
        if not a.work:
            shutil.rmtree(work, ignore_errors=True)
    ratios = [r for r in ratios if r]
    if not ratios and a.rounds:
        sys.exit("no model was compared")
    if ratios:
        print(f"geometric mean of {len(ratios)} ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, least {min(ratios):.2f}")


main()
