"""Weights that are made of constants when the model is loaded (once): standardised weights of a convolution and dequantised ones of a product, above
what the compiler folds; sums of weights that a kernel wants beside its packed copy of them; both clients; against the same model with those constants as inputs, which computes them at every run; damaged manifests.
Usage: once.py [BUILD]"""
import json, os, shutil, statistics, subprocess, sys, tempfile, time, unittest
sys.path.append("tests")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
import onnx_build as ob
from service import Service

build = os.path.abspath(sys.argv.pop(1) if len(sys.argv) > 1 else "build")
import kiln

work = tempfile.mkdtemp()
service = Service(build)
client = kiln.Client(f"http://127.0.0.1:{service.port}", cache=work + "/cache", timeout=240)
rng = np.random.default_rng(3)


class Model:
    """Weights as initializers or, where not `constant`, as inputs."""

    def __init__(self, nodes, x, weights):
        self.nodes, self.x, self.weights = nodes, x, weights

    def onnx(self, constant=True):
        kind = {np.dtype("f4"): "f32", np.dtype("u1"): "u8", np.dtype("i8"): "i64"}
        big = {n for n, w in self.weights.items() if w.size > 1000}
        given = [ob.constant(n, kind[w.dtype], w.shape, w.ravel().tolist()) for n, w in self.weights.items() if constant or n not in big]
        inputs = [ob.value("x", "f32", self.x.shape)] + [ob.value(n, kind[self.weights[n].dtype], self.weights[n].shape) for n in big if not constant]
        return ob.model(ob.graph(self.nodes, inputs, [ob.value("y", "f32", None)], given), (("", 17),))


def standardised():
    """A convolution whose filters have mean 0 and variance 1."""
    w = rng.standard_normal((160, 768, 3, 3)).astype("f4") + 0.5
    nodes = [ob.node("ReduceMean", ["w"], ["m"], axes=[1, 2, 3]), ob.node("Sub", ["w", "m"], ["c"]), ob.node("Mul", ["c", "c"], ["s"]),
             ob.node("ReduceMean", ["s"], ["v"], axes=[1, 2, 3]), ob.node("Sqrt", ["v"], ["d"]), ob.node("Div", ["c", "d"], ["n"]),
             ob.node("Conv", ["x", "n"], ["y"], pads=[1, 1, 1, 1])]
    x = rng.standard_normal((1, 768, 4, 4)).astype("f4")
    n = (w - w.mean((1, 2, 3), keepdims=True, dtype="f8")) / w.astype("f8").std((1, 2, 3), keepdims=True)
    p = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = sum(np.einsum("fc,nchw->nfhw", n[:, :, i, j], p[:, :, i:i + 4, j:j + 4]) for i in range(3) for j in range(3))
    return Model(nodes, x, {"w": w}), y


def dequantised():
    """A product with a weight of bytes, turned after it is dequantised by columns."""
    q, s, z = rng.integers(0, 256, (1100, 1024)).astype("u1"), rng.random(1100).astype("f4") / 64, rng.integers(100, 150, 1100).astype("u1")
    nodes = [ob.node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0), ob.node("Transpose", ["w"], ["t"], perm=[1, 0]), ob.node("MatMul", ["x", "t"], ["y"])]
    x = rng.standard_normal((8, 1024)).astype("f4")
    y = x.astype("f8") @ ((q.astype("f8") - z[:, None]) * s[:, None].astype("f8")).T
    return Model(nodes, x, {"q": q, "s": s, "z": z}), y


def far(got, want):
    return float(np.abs(got - want).max() / np.abs(want).max())


class Once(unittest.TestCase):
    def each_way(self, m, want):
        fast = client.compile_onnx(m.onnx())
        self.assertIn("once", fast.manifest)
        self.assertTrue(any(w.get("once") for w in fast.manifest["weights"]))
        got = fast(m.x)
        self.assertLess(far(got, want), 1e-5)
        self.assertTrue(np.array_equal(fast(m.x), got))
        slow = client.compile_onnx(m.onnx(constant=False))
        self.assertNotIn("once", slow.manifest)
        args = [m.x if a["name"] == "x" else m.weights[a["name"]] for a in slow.manifest["inputs"]]
        self.assertLess(far(slow(*args), want), 1e-5)
        times = [[], []]
        for _ in range(15):
            for k, run in enumerate((lambda: fast(m.x), lambda: slow(*args))):
                begin = time.perf_counter()
                run()
                times[k].append(time.perf_counter() - begin)
        ratio = statistics.median(b / a for a, b in zip(*times))
        print(f"# {len(fast.manifest['steps'])} steps in place of {len(slow.manifest['steps'])}, {ratio:.2f} times as fast")
        self.assertGreater(ratio, 1)

    def test_standardised(self):
        self.each_way(*standardised())

    def test_dequantised(self):
        self.each_way(*dequantised())

    def test_sums_of_weights(self):
        """Products of signed bytes, one behind the other; the second one's weights are a row a result."""
        a, b = rng.integers(-128, 128, (256, 176)).astype("i1"), rng.integers(-128, 128, (96, 176)).astype("i1")
        nodes = [ob.node("MatMulInteger", ["x", "a"], ["p"]), ob.node("Cast", ["p"], ["f"], to=1), ob.node("Mul", ["f", "s"], ["g"]),
                 ob.node("Round", ["g"], ["r"]), ob.node("Clip", ["r", "lo", "hi"], ["c"]), ob.node("Cast", ["c"], ["q"], to=3),
                 ob.node("Transpose", ["b"], ["t"], perm=[1, 0]), ob.node("MatMulInteger", ["q", "t"], ["y"])]
        given = [ob.constant("a", "i8", a.shape, a.ravel().tolist()), ob.constant("b", "i8", b.shape, b.ravel().tolist())]
        given += [ob.constant(n, "f32", (), [v]) for n, v in (("s", 2.0 ** -12), ("lo", -128.0), ("hi", 127.0))]
        body = ob.model(ob.graph(nodes, [ob.value("x", "i8", (64, 256))], [ob.value("y", "i32", (64, 96))], given), (("", 17),))
        x = rng.integers(-128, 128, (64, 256)).astype("i1")
        q = np.clip(np.round((x.astype("i4") @ a.astype("i4")).astype("f4") * np.float32(2.0 ** -12)), -128, 127).astype("i4")
        want = q @ b.astype("i4").T
        m = client.compile_onnx(body)
        for _ in range(2):
            np.testing.assert_array_equal(m(x), want)
        with open("/proc/cpuinfo") as cpu:
            flags = cpu.read().split()
        if "avx512_vnni" in flags and "amx_int8" not in flags:
            traces = ["".join(k.manifest["trace"]) for k in m._kernels]
            self.assertEqual(sum("ahead sum" in t and "prepack less" in t for t in traces), 2, traces)
        with open(work + "/bytes.onnx", "wb") as f:
            f.write(body)
        np.save(work + "/bytes.npy", x)
        env = {**os.environ, "KILN_URL": f"http://127.0.0.1:{service.port}"}
        for args in (("compile", work + "/bytes.onnx", "-o", work + "/bytes"),
                     ("run", work + "/bytes", "--input", f"x={work}/bytes.npy", "-o", work + "/bytes_y.npy", "--threads", "2")):
            r = subprocess.run([build + "/kiln", *args], capture_output=True, text=True, env=env, timeout=240)
            self.assertEqual(r.returncode, 0, r.stderr)
        np.testing.assert_array_equal(np.load(work + "/bytes_y.npy"), want)

    def test_from_a_folder(self):
        m, want = standardised()
        with open(work + "/m.onnx", "wb") as f:
            f.write(m.onnx())
        np.save(work + "/x.npy", m.x)
        env = {**os.environ, "KILN_URL": f"http://127.0.0.1:{service.port}"}
        kilns = lambda *args: subprocess.run([build + "/kiln", *args], capture_output=True, text=True, env=env, timeout=240)
        r = kilns("compile", work + "/m.onnx", "-o", work + "/dir")
        self.assertEqual(r.returncode, 0, r.stderr)
        plan = kilns("plan", work + "/m.onnx")
        self.assertRegex(plan.stdout, r"once +\d+ .*ReduceMean")
        for threads in ("1", "2"):
            r = kilns("run", work + "/dir", "--input", f"x={work}/x.npy", "-o", work + "/y.npy", "--threads", threads)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertLess(far(np.load(work + "/y.npy"), want), 1e-5)
        self.damaged()

    def damaged(self):
        """Whatever stands in model.json, there is an answer; a result may be wrong, a signal may not come."""
        def change(name, f):
            copy = work + "/copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(work + "/dir", copy)
            with open(copy + "/model.json") as file:
                model = json.load(file)
            f(model["manifest"])
            with open(copy + "/model.json", "w") as file:
                json.dump(model, file)
            r = subprocess.run([build + "/kiln", "run", copy, "--input", f"x={work}/x.npy"], capture_output=True, text=True, timeout=60)
            self.assertGreaterEqual(r.returncode, 0, (name, r.stderr))
            return r
        with open(work + "/dir/model.json") as file:
            first = next(i for i, w in enumerate(json.load(file)["manifest"]["weights"]) if w.get("once"))
        r = change("shorter", lambda m: m["weights"][first].update(bytes=64))
        self.assertIn("bytes", r.stderr)
        r = change("negative", lambda m: m["weights"][first].update(bytes=-1))
        self.assertEqual(r.returncode, 65)
        r = change("huge", lambda m: m["weights"][first].update(bytes=1 << 50))
        self.assertEqual(r.returncode, 65)
        r = change("not once", lambda m: m["weights"][first].pop("once"))
        self.assertEqual(r.returncode, 65)
        r = change("no steps", lambda m: m.pop("once"))
        self.assertEqual(r.returncode, 65)


try:
    unittest.main()
finally:
    service.stop()
    shutil.rmtree(work, ignore_errors=True)
