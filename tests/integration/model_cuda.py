"""Models for a GPU from the command line: compile to a folder, what the folder says, run with a driver that emulates the kernels against the outputs that
another runtime gave, and what is said where there is no driver, another GPU, damaged files. Usage: model_cuda.py [BUILD]"""
import json, os, re, shutil, subprocess, sys, tempfile
sys.path.append("tests")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import npy
from service import Checks, Service

build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
work = tempfile.mkdtemp()
check = Checks()


def kiln(*args, driver=build + "/tests/libcuda_emu.so"):
    return service.kiln(*args, env={"KILN_LIBCUDA": driver})


def digests_of(folder):
    with open(folder + "/model.json") as f:
        return json.load(f)


def whole(name):
    """Compiled, its kernels in the emulator's form, run: the outputs are those of tests/data."""
    folder = f"{work}/{name}"
    with open(f"tests/data/{name}.json") as f:
        data = json.load(f)
    rc, out, err = kiln("compile", f"tests/data/{name}.onnx", "--target", "nvidia-h200", "-o", folder)
    check(f"compile {name}", rc == 0 and re.search(r"images +\d+ (cubin|source)", out), out + err)
    model = digests_of(folder)
    manifest = model["manifest"]
    check("a launcher", os.path.exists(folder + "/launcher.c") and "entry.so" in model["files"] and manifest["language"] == "cuda")
    for i, k in enumerate(manifest["kernels"]):
        kind = {"source": "cu"}.get(k["image"]["kind"], k["image"]["kind"])
        check("an image by digest", model["files"].get(f"kernels/{i}.{kind}") == k["image"]["sha256"], k["image"])
        check("launches as data", k["launch"][0]["entry"].startswith(k["entry"]) and "fallback" in k and k["trace"] is not None)
    check("places of temporaries", manifest["arena"]["bytes"] >= manifest["arena"]["temporaries_offset_bytes"], manifest["arena"])
    rc, out, err = kiln("run", folder, driver=work + "/no-driver.so")
    check("no driver", rc == 65 and "no CUDA driver" in err and "sm_90a" in err, err)
    subprocess.run([build + "/emu-images", folder], check=True, timeout=300)
    given = []
    for a in manifest["inputs"]:
        npy.write(f"{work}/{a['name']}.npy", data["inputs"][a["name"]], a["shape"])
        given += ["--input", f"{a['name']}={work}/{a['name']}.npy"]
    rc, out, err = kiln("run", folder, *given, "-o", work + "/y.npy")
    check(f"run {name}", rc == 0, out + err)
    for i, a in enumerate(manifest["outputs"]):
        want = data["outputs"][a["name"]]
        got = npy.read(work + (f"/y.{i}.npy" if i else "/y.npy"))[1] if rc == 0 else []
        worst = max((abs(x - y) for x, y in zip(got, want)), default=9) / max(1.0, max(map(abs, want)))
        check(f"{name} {a['name']}", len(got) == len(want) and worst < 1e-5, worst)
    return folder


PROGRAM = r"""
import array, ctypes, json, os, sys
sys.path.insert(0, "api/python")
import kiln, kiln.graph
from kiln import cuda
folder, name, cache = sys.argv[1:]
with open(folder + "/model.json") as f:
    model = json.load(f)
with open(f"tests/data/{name}.json") as f:
    data = json.load(f)
client = kiln.Client(cache=cache)
manifest = model["manifest"]
for k in manifest["kernels"]:  # the emulator's images are nobody's but this test's
    with open(f"{folder}/kernels/{manifest['kernels'].index(k)}.cubin", "rb") as f:
        client.cache.put_blob(k["image"]["sha256"], f.read())
answer = json.loads(client.transport.call("GET", "/v1/kernels/" + model["key"])[2])
m = kiln.graph.Model(client, dict(answer, manifest=manifest))


def tensor(a):
    return memoryview(array.array("f", data["inputs"][a["name"]])).cast("B").cast("f", a["shape"])


def worst(got, want):
    return max(abs(x - y) for x, y in zip(got, want)) / max(1.0, max(map(abs, want)))


outs = m(*[tensor(a) for a in manifest["inputs"]])
outs = outs if isinstance(outs, list) else [outs]
assert all(worst(o.cast("B").cast("f"), data["outputs"][n]) < 1e-5 for o, n in zip(outs, m.outputs))


class There:
    # An array in the device's memory, as other libraries show it.
    def __init__(self, a, stream):
        self.size, p = a["bytes"], ctypes.c_uint64()
        with m._cuda:
            cuda.check(cu, cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(self.size)), "alloc")
        self.address = p
        self.__cuda_array_interface__ = {"data": (p.value, False), "typestr": "<f4", "shape": tuple(a["shape"]), "strides": None, "version": 3, "stream": stream}

    def put(self, values):
        with m._cuda:
            cuda.check(cu, cu.cuMemcpyHtoD_v2(self.address, array.array("f", values).tobytes(), ctypes.c_size_t(self.size)), "up")

    def get(self):
        raw = ctypes.create_string_buffer(self.size)
        with m._cuda:
            cuda.check(cu, cu.cuMemcpyDtoH_v2(raw, self.address, ctypes.c_size_t(self.size)), "down")
        return array.array("f", raw.raw)


cu = m._cuda.cu
made = ctypes.c_void_p()
with m._cuda:
    cuda.check(cu, cu.cuStreamCreate(ctypes.byref(made), 1), "stream")
for stream in (None, made.value):
    ins, outs = [There(a, stream) for a in manifest["inputs"]], [There(a, stream) for a in manifest["outputs"]]
    for x, a in zip(ins, manifest["inputs"]):
        x.put(data["inputs"][a["name"]])
    m(*ins, out=outs)
    assert all(worst(o.get(), data["outputs"][n]) < 1e-5 for o, n in zip(outs, m.outputs))
try:
    m(*ins, out=[There(dict(a, shape=a["shape"] + [1]), None) for a in manifest["outputs"]])
    assert False
except kiln.Unsupported as e:
    assert "where the model takes" in str(e)
os.environ["KILN_LIBCUDA"] = "/nowhere.so"
try:
    kiln.graph.Model(client, dict(answer, manifest=manifest)).bind()
    assert False
except kiln.Unsupported as e:
    assert "no CUDA driver" in str(e)
print("right")
"""


def python(folder, name):
    env = {**os.environ, "KILN_URL": f"http://127.0.0.1:{service.port}", "KILN_LIBCUDA": build + "/tests/libcuda_emu.so"}
    r = subprocess.run([sys.executable, "-c", PROGRAM, folder, name, work + "/cache"], capture_output=True, text=True, env=env, timeout=300)
    check("the Python client", r.stdout == "right\n", r.stdout + r.stderr)


service = Service(build)
try:
    folder = whole("small_cnn")
    python(folder, "small_cnn")
    python(whole("small_block"), "small_block")
    rc, out, err = kiln("bench", folder, "--runs", "2")
    check("bench", rc == 0 and "median of 2 runs" in out, out + err)
    with open(folder + "/kernels/0.cubin", "ab") as f:
        f.write(b"x")
    rc, out, err = kiln("run", folder)
    check("a damaged image", rc == 65 and "kernels/0.cubin does not have the SHA-256" in err, err)
    other = work + "/a100"
    rc, out, err = kiln("compile", "tests/data/small_cnn.onnx", "--target", "nvidia-a100", "-o", other)
    check("compile for another GPU", rc == 0, out + err)
    subprocess.run([build + "/emu-images", other], check=True, timeout=300)
    rc, out, err = kiln("run", other)
    check("another GPU", rc == 65 and "sm_90" in err and "sm_80" in err, err)
    os.unlink(other + "/entry.so")
    rc, out, err = kiln("run", other)
    check("no launcher", rc == 65 and "entry.so" in err, err)
finally:
    service.stop()
    shutil.rmtree(work, ignore_errors=True)
sys.exit(check.end())
