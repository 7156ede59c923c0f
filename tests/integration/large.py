"""Models of many bytes: large weights stay with the client, which names them by their digests and binds them itself; what the service holds is small.
Usage: large.py [BUILD]"""
import json, os, shutil, subprocess, sys, tempfile, unittest
sys.path.append("tests")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
import onnx_build as ob
from service import Service

build = os.path.abspath(sys.argv.pop(1) if len(sys.argv) > 1 else "build")
import kiln
from kiln.wire import field, number

work = tempfile.mkdtemp()
service = Service(build)
client = kiln.Client(f"http://127.0.0.1:{service.port}", cache=work + "/cache", timeout=240)
rng = np.random.default_rng(4)
WIDE = 3072


def tensor(name, x):
    return b"".join(number(1, d) for d in x.shape) + number(2, 1) + field(8, name.encode()) + field(9, x.tobytes())


def model():
    """Two products; the second weight is turned and scaled, which is done once; 72 MiB."""
    a, b = (rng.standard_normal((WIDE, WIDE), dtype="f4") / 64 for _ in range(2))
    c = rng.standard_normal(WIDE, dtype="f4")
    nodes = [ob.node("MatMul", ["x", "a"], ["p"]), ob.node("Relu", ["p"], ["q"]), ob.node("Mul", ["b", "c"], ["d"]), ob.node("MatMul", ["q", "d"], ["y"])]
    g = ob.graph(nodes, [ob.value("x", "f32", (2, WIDE))], [ob.value("y", "f32", None)], [tensor("a", a), tensor("b", b), tensor("c", c)])
    x = rng.standard_normal((2, WIDE), dtype="f4")
    want = np.maximum(x.astype("f8") @ a, 0) @ (b.astype("f8") * c)
    return ob.model(g), x, want


body, x, want = model()


def far(got):
    return float(np.abs(got - want).max() / np.abs(want).max())


def peak():
    with open(f"/proc/{service.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) << 10


class Large(unittest.TestCase):
    def test_python(self):
        m = client.compile_onnx(body)
        self.assertTrue(any(w.get("offset") == -1 and len(w.get("sha256", "")) == 64 for w in m.manifest["weights"]))
        self.assertLess(far(m(x)), 1e-5)
        self.assertLess(peak(), len(body))
        again = client.compile_onnx(body)
        again._given = {}
        with self.assertRaises(kiln.DigestError):
            again(x)

    def test_folder(self):
        with open(work + "/m.onnx", "wb") as f:
            f.write(body)
        np.save(work + "/x.npy", x)
        env = {**os.environ, "KILN_URL": f"http://127.0.0.1:{service.port}"}
        for _ in range(2): # over an older folder, too
            r = subprocess.run([build + "/kiln", "compile", work + "/m.onnx", "-o", work + "/dir"], capture_output=True, text=True, env=env, timeout=240)
            self.assertEqual(r.returncode, 0, r.stderr)
        self.assertLess(os.path.getsize(work + "/dir/weights.bin"), len(body) + 4096)
        r = subprocess.run([build + "/kiln", "run", work + "/dir", "--input", f"x={work}/x.npy", "-o", work + "/y.npy"], capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertLess(far(np.load(work + "/y.npy")), 1e-5)
        for change in (lambda w: w.update(offset=w["offset"] + 4), lambda w: w.update(offset=1 << 40), lambda w: w.update(offset=-1)):
            with open(work + "/dir/model.json") as f:
                m = json.load(f)
            change(next(w for w in m["manifest"]["weights"] if w.get("offset", -1) >= 0))
            os.makedirs(work + "/bad", exist_ok=True)
            for name in ("entry.so", "weights.bin", "kernels"):
                if not os.path.lexists(f"{work}/bad/{name}"):
                    os.symlink(f"{work}/dir/{name}", f"{work}/bad/{name}")
            with open(work + "/bad/model.json", "w") as f:
                json.dump(m, f)
            r = subprocess.run([build + "/kiln", "run", work + "/bad", "--input", f"x={work}/x.npy"], capture_output=True, text=True)
            self.assertEqual(r.returncode, 65, r.stderr)

    def outside(self, location, offset=0, length=None):
        """The same model with its weights in a file, as onnx writes what is above 2 GiB: location, offset, length."""
        def entry(key, value):
            return field(13, field(1, key) + field(2, str(value).encode()))

        def moved(message, level=0):
            out = b""
            for n, v, begin, end in kiln.wire._extents(memoryview(message)):
                if level < 2 and n == (7, 5)[level]:
                    out += field(n, moved(v, level + 1))
                elif level == 2 and n == 9:
                    where = len(self.data)
                    self.data += bytes(v) + b"\0" * (-len(v) % 4096)
                    out += entry(b"location", location) + entry(b"offset", where + offset) + entry(b"length", len(v) if length is None else length) + number(14, 1)
                else:
                    out += bytes(memoryview(message)[begin:end])
            return out
        self.data = b""
        return moved(body)

    def compile_path(self, path):
        env = {**os.environ, "KILN_URL": f"http://127.0.0.1:{service.port}"}
        return subprocess.run([build + "/kiln", "compile", path, "-o", work + "/apart"], capture_output=True, text=True, env=env, timeout=240)

    def test_weights_in_files(self):
        folder = work + "/files"
        os.makedirs(folder + "/sub")
        np.save(work + "/x.npy", x)
        with open(folder + "/m.onnx", "wb") as f: f.write(self.outside("sub/w.bin"))
        with open(folder + "/sub/w.bin", "wb") as f: f.write(self.data)
        self.assertLess(os.path.getsize(folder + "/m.onnx"), 4096)
        self.assertLess(far(client.compile_onnx(folder + "/m.onnx")(x)), 1e-5)
        self.assertLess(far(client.onnx(folder + "/m.onnx")(x)), 1e-5)
        r = self.compile_path(folder + "/m.onnx")
        self.assertEqual(r.returncode, 0, r.stderr)
        r = subprocess.run([build + "/kiln", "run", work + "/apart", "--input", f"x={work}/x.npy", "-o", work + "/y.npy"], capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertLess(far(np.load(work + "/y.npy")), 1e-5)

    def test_weights_in_files_of_graphs_inside(self):
        """A branch's weights, and a Constant's, in a file; by the service and by the verbs that need none."""
        folder = work + "/inside"
        os.makedirs(folder)
        w = np.random.default_rng(3).standard_normal((2, 8, 8)).astype("f4")
        with open(folder + "/w.bin", "wb") as f: f.write(w.tobytes())

        def tensor(name, i):
            entries = ((b"location", b"w.bin"), (b"offset", b"%d" % (256 * i)), (b"length", b"256"))
            return number(1, 8) + number(1, 8) + number(2, 1) + field(8, name) + b"".join(field(13, field(1, k) + field(2, v)) for k, v in entries) + number(14, 1)
        yes = ob.graph([ob.node("MatMul", ["x", "w"], ["p"])], [], [ob.value("p", "f32", (3, 8))], [tensor(b"w", 0)])
        no = ob.graph([ob.node("Constant", [], ["k"]) + field(5, field(1, b"value") + field(5, tensor(b"", 1)) + number(20, 4)), ob.node("MatMul", ["x", "k"], ["q"])],
                      [], [ob.value("q", "f32", (3, 8))])
        m = ob.model(ob.graph([ob.node("If", ["c"], ["y"], then_branch=yes, else_branch=no)], [ob.value("x", "f32", (3, 8)), ob.value("c", "bool", ())], [ob.value("y", "f32", (3, 8))]))
        with open(folder + "/m.onnx", "wb") as f: f.write(m)
        model, a = client.compile_onnx(folder + "/m.onnx"), np.random.default_rng(4).standard_normal((3, 8)).astype("f4")
        for c in (True, False):
            self.assertLess(float(np.abs(model(a, np.array(c)) - a @ w[0 if c else 1]).max()), 1e-5)
        r = self.compile_path(folder + "/m.onnx")
        self.assertEqual(r.returncode, 0, r.stderr)
        for verb in ("plan", "graph"):
            r = subprocess.run([build + "/kiln", verb, folder + "/m.onnx"], capture_output=True, text=True)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn("MatMul", r.stdout)

    def test_weights_in_files_elsewhere(self):
        """Out of the model's folder, by dots, from the root, or by a link; behind the file's end; not there: all are named, and none is read."""
        folder = work + "/cage"
        os.makedirs(folder)
        self.outside("")
        for name in (work + "/secret.bin", folder + "/in.bin"):
            with open(name, "wb") as f: f.write(self.data)
        os.symlink(work + "/secret.bin", folder + "/link.bin")
        os.symlink(work, folder + "/up")
        os.mkfifo(folder + "/fifo")
        for location, how in (("fifo", {}), ("../secret.bin", {}), (work + "/secret.bin", {}), ("link.bin", {}), ("up/secret.bin", {}), ("in.bin", {"offset": 1 << 40}),
                              ("in.bin", {"length": 1 << 40}), ("none.bin", {}), (".", {})):
            with open(folder + "/m.onnx", "wb") as f: f.write(self.outside(location, **how))
            r = self.compile_path(folder + "/m.onnx")
            self.assertIn(r.returncode, (65, 66), (location, r.stderr))
            self.assertIn(location, r.stderr)
            with self.assertRaises(kiln.Error) as e:
                client.compile_onnx(folder + "/m.onnx")
            self.assertIn(location, str(e.exception))

    def test_a_digest_that_is_none(self):
        bad = number(1, 4) + number(2, 1) + field(8, b"w") + field(13, field(1, b"location") + field(2, b"sha256:12")) + number(14, 1)
        g = ob.graph([ob.node("Add", ["x", "w"], ["y"])], [ob.value("x", "f32", (4,))], [ob.value("y", "f32", None)], [bad])
        with self.assertRaises(kiln.ServiceError) as e:
            client.compile_onnx(ob.model(g))
        self.assertIn("sha256:", str(e.exception.problem))


try:
    unittest.main()
finally:
    service.stop()
    shutil.rmtree(work, ignore_errors=True)
