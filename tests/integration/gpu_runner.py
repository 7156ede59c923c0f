"""kiln-gpu-run against the mock driver: every way that a kernel can fail, and what is reported of those that do not. usage: gpu_runner.py RUNNER MOCK"""
import json, os, subprocess, sys, tempfile

runner, mock = (os.path.abspath(p) for p in sys.argv[1:3])
MASK = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def value(seed, kind, tensor, i):
    """An f32 input's element: tests/../workers/VERIFY.md, written again from its description."""
    h = mix((mix((seed + (tensor << 56) + kind) & MASK) + i) & MASK)
    if kind == 1:
        return float((h >> 33) % 5 - 2)
    x, one = h >> 40, 1 << 23
    return (x - one + (x >= one)) / one


N = 4096
BODIES = ["add", "wrong", "partial", "overrun", "racy", "hang", "crash", "none"]
checks_failed = []


def check(what, condition):
    if not condition:
        checks_failed.append(what)
        print("failed:", what)


def module(lines, arch=90):
    return "MOCK arch=%d\n" % arch + "\n".join(lines) + "\n"


def points(seed, kind):
    at = [0, 1, N // 2, N - 1] + list(range(7, N, 311))
    return ";".join("%d:%r:%r" % (i, value(seed, kind, 0, i) + value(seed, kind, 1, i), abs(value(seed, kind, 0, i)) + abs(value(seed, kind, 1, i))) for i in at)


def group(name, body_of):
    text = ["group id=%s key=kk1-%s target=mock program=y%%5bI%%5d%%20%%3d%%20%%22a%%22" % (name, name)]
    text += ["buffer id=a dtype=f32 elems=%d input=0" % N, "buffer id=b dtype=f32 elems=%d input=1" % N, "buffer id=y dtype=f32 elems=%d" % N]
    for i, (id, launch, args) in enumerate(body_of):
        text += ["kernel id=%s module=m rank=%d flops=%d bytes=%d predicted_us=3 trace=split%%20y%%0a" % (id, i, N, 12 * N), "launch " + launch]
        text += ["arg " + a for a in args]
    return text + ["check buffer=y kind=%d seed=5 rtol=1e-6 atol=1e-30 points=%s" % (k, points(5, k)) for k in (1, 0)]


PTRS = ["ptr=a", "ptr=b", "ptr=y"]
MAP = "tmap=a dtype=f32 dims=64,64 strides=256 box=32,64 swizzle=3"


def run(text, modules, *options, env=None):
    with tempfile.TemporaryDirectory() as d:
        open(d + "/bundle.txt", "w").write("\n".join(text) + "\n")
        for name, body in modules.items():
            open(d + "/" + name, "w").write(body)
        p = subprocess.run([runner, d, "--batch-ms", "0.4", "--rounds", "3", *options], capture_output=True, text=True, timeout=60,
                           env={**os.environ, "KILN_LIBCUDA": mock, "MOCK_CUDA_REPORT": "1", **(env or {})})
    return p.returncode, [json.loads(line) for line in p.stdout.splitlines() if line[0] == "{"], p.stderr


def every_end():
    fns = ["fn %s body=%s us=%d elems=%d params=ptr,ptr,ptr" % (b, b, 2 + i, N) for i, b in enumerate(BODIES)]
    fns += ["fn slow body=add us=40 elems=%d params=ptr,ptr,ptr" % N, "fn big body=add elems=%d params=ptr,ptr,ptr" % N,
            "fn pair body=add cluster=2 elems=%d params=tmap,ptr,ptr,i32,i64,f32" % N, "fn fat body=add regs=255 threads=256 elems=%d params=ptr,ptr,ptr" % N]
    kernels = [(b, "entry=%s grid=16,1,1 block=256,1,1" % b, PTRS) for b in BODIES]
    kernels += [("slow", "entry=slow grid=16,1,1 block=256,1,1", PTRS), ("big", "entry=big grid=16,1,1 block=256,1,1 shared=200000", PTRS),
                ("toobig", "entry=big grid=16,1,1 block=256,1,1 shared=240000", PTRS), ("missing", "entry=nothing grid=1,1,1 block=1,1,1", PTRS),
                ("fat", "entry=fat grid=16,1,1 block=512,1,1", PTRS),
                ("pair", "entry=pair grid=132,1,1 block=128,1,1 cluster=2,1,1 shared=65536 persistent=1", [MAP, "ptr=b", "ptr=y", "i32=-3", "i64=7", "f32=0.5"])]
    text = ["module id=m file=m.cubin", "module id=old file=old.cubin"] + group("g0", kernels) + group("g1", kernels[:1])
    status, lines, log = run(text, {"m.cubin": module(fns), "old.cubin": module([], 80)}, "--step-timeout", "1")
    head, results = lines[0], lines[1:]
    check("one head", head.get("runner") == 1 and head["device"] == "Mock GPU" and head["driver"] == 13000 and head["clock_khz"] > 0)
    check("one line a kernel", sorted((r["group"], r["kernel"]) for r in results) == sorted([("g0", k[0]) for k in kernels] + [("g1", "add")]))
    got = {(r["group"], r["kernel"]): r for r in results}
    want = {"add": "ok", "wrong": "wrong", "partial": "wrong", "overrun": "wrong", "racy": "ok", "hang": "timeout", "crash": "crashed", "none": "wrong",
            "slow": "ok", "big": "ok", "toobig": "load-failed", "missing": "load-failed", "fat": "launch-failed", "pair": "ok"}
    for k, w in want.items():
        check("%s is %s: %s" % (k, w, got["g0", k]), got["g0", k]["status"] == w)
    ok = got["g0", "add"]
    check("graphs", ok["captured"] == 64 and ok["reps"] % 64 == 0 and ok["reps"] > 64 and got["g0", "slow"]["captured"] == 0)
    check("times", abs(ok["us"] - 2) < 0.1 and abs(got["g0", "slow"]["us"] - 40) < 1 and ok["us_min"] <= ok["us"] <= ok["us_max"])
    check("rates", abs(ok["gbs"] - 12 * N / ok["us"] / 1e3) < 1 and ok["sets"] > 2)
    check("details", "not written" in got["g0", "partial"]["detail"] and "behind buffer" in got["g0", "overrun"]["detail"] and "should be" in got["g0", "wrong"]["detail"])
    check("determinism", ok["deterministic"] and not got["g0", "racy"]["deterministic"])
    check("texts come back", ok["program"] == 'y[I] = "a"' and ok["trace"] == "split y\n" and ok["key"] == "kk1-g0")
    check("registers", ok["registers"] == 32 and ok["checked"] == 2 * len(points(5, 0).split(";")))
    check("the second group", got["g1", "add"]["status"] == "ok")
    check("status 1: not all are right", status == 1)
    return log


def clean_run():
    text = ["module id=m file=m.cubin"] + group("g", [("add", "entry=add grid=16,1,1 block=256,1,1", PTRS)])
    fns = ["fn add body=add elems=%d params=ptr,ptr,ptr" % N]
    status, lines, log = run(text, {"m.cubin": module(fns)})
    check("all right: status 0", status == 0 and lines[-1]["status"] == "ok")
    check("no rule is broken, nothing is left: " + log, "0 allocations live, 0 contexts" in log and log.count("mock:") == 1)
    status, lines, log = run(text, {"m.cubin": module(fns, 80)})
    check("a module for another device", lines[-1]["status"] == "load-failed" and "NO_BINARY" in lines[-1]["detail"] and status == 1)
    huge = [t.replace("elems=4096", "elems=99999999") if t.startswith("buffer") else t for t in text]
    status, lines, log = run(huge, {"m.cubin": module(fns)})
    check("no memory", lines[-1]["status"] == "no-memory")
    status, lines, log = run(text, {"m.cubin": module(fns)}, env={"KILN_LIBCUDA": "/nonexistent/libcuda.so"})
    check("no driver: status 3", status == 3 and not lines and "no CUDA driver" in log)


def refusals():
    good = ["module id=m file=m.cubin"] + group("g", [("add", "entry=add grid=16,1,1 block=256,1,1", PTRS)])
    for what, old, new in [("grid", "grid=16,1,1", "grid=0,1,1"), ("block", "block=256,1,1", "block=2048,1,1"), ("cluster", "block=256,1,1", "block=256,1,1 cluster=3,1,1"),
                           ("buffer", "arg ptr=b", "arg ptr=c"), ("kind", "arg ptr=b", "arg u7=1"), ("module", "module=m", "module=x"), ("dtype", "dtype=f32", "dtype=f31"),
                           ("point", "points=0:", "points=-5:"), ("map", "arg ptr=b", "arg " + MAP.replace("strides=256", "strides=250")),
                           ("box", "arg ptr=b", "arg " + MAP.replace("box=32", "box=64")), ("path", "file=m.cubin", "file=../m.cubin"), ("item", "check ", "chuck ")]:
        text = "\n".join(good).replace(old, new, 1).split("\n")
        status, lines, log = run(text, {"m.cubin": module([])})
        check("%s is refused with its line: %s" % (what, log), status == 2 and "bundle.txt:" in log and not lines)
    cut = "\n".join(good)
    for n in range(0, len(cut), 97):  # no prefix of a bundle brings it down
        status, _, log = run(cut[:n].split("\n"), {"m.cubin": module([])}, "--list")
        check("cut at %d: %d" % (n, status), status in (0, 2))


log = every_end()
clean_run()
refusals()
print("# %s" % ("failed: %d" % len(checks_failed) if checks_failed else "14 ends of a kernel, 12 refusals"))
sys.exit(bool(checks_failed))
