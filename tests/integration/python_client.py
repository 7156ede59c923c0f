"""The Python client against a real service: kernels called with NumPy arrays and plain buffers, the local cache, digests, bad days.
Usage: python_client.py [BUILD]"""
import array, os, shutil, socket, subprocess, sys, tempfile, threading, time, unittest
sys.path.append("tests")
from free_port import free_port

build = sys.argv.pop(1) if len(sys.argv) > 1 else "build"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "api", "python"))
import kiln
from kiln import arrays
from kiln.cache import sha256
try:
    import numpy as np
except ImportError:
    np = None

work = tempfile.mkdtemp()


class Service:
    """A kilnd on a port of its own; it says which in its log."""

    def __init__(self):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.log = open(work + "/log", "ab")
        self.process = subprocess.Popen([build + "/kilnd", "--listen", f"127.0.0.1:{self.port}", "--data", work + "/data", "--hwspecs", "hwspecs"], stderr=self.log)
        for _ in range(100):
            try:
                kiln.Client(self.url, timeout=2).transport.call("GET", "/readyz")
                return
            except kiln.Error:
                time.sleep(0.1)
        raise SystemExit("the service did not start")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


service = Service()
MATMUL = "c[M,N] +=! a[M,K] * b[K,N]"


def client(name="cache", **more):
    return kiln.Client(more.pop("url", service.url), cache=f"{work}/{name}", **more)


class Calls(unittest.TestCase):
    def test_plain_buffers(self):
        k = client().compile("y[N] = x[N] * 2.0 + z[N]", x="f32[6]", z="f32[6]")
        y = k(array.array("f", range(6)), array.array("f", [1] * 6))
        self.assertEqual(list(y), [1, 3, 5, 7, 9, 11])
        self.assertEqual((k.inputs, k.outputs), (["x", "z"], ["y"]))

    @unittest.skipIf(np is None, "no NumPy")
    def test_constants_are_packed_once_or_at_every_call(self):
        trace = "split out0 S1 2 16\nreorder out0 S0.0 S1.0 R0.0 | S1.1 S1.2\nunroll out0 S1.1\nvectorize out0 S1.2\nprepack out0 0 S1.0 R0.0 S1.1 S1.2\n"
        k = client().compile(MATMUL, trace=trace, a="f32[5,7]", b="f32[7,70] const")
        a, b = np.arange(35, dtype="f4").reshape(5, 7), np.arange(490, dtype="f4").reshape(7, 70)
        packed = k.prepack("b", b)
        for given in (b, packed, packed):
            np.testing.assert_array_equal(k(a, given), a @ b)
        run, (c,) = k.bound(a, packed)  # reads what is in the arrays when it is called
        a += 1
        run()
        np.testing.assert_array_equal(c, a @ b)
        a -= 1
        with self.assertRaises(kiln.Unsupported):
            k(packed, b)

    def test_order_of_arguments_is_the_clients(self):
        k = client().compile("y[N] = x[N] - z[N]", z="f32[4]", x="f32[4]")
        self.assertEqual(k.inputs, ["z", "x"])
        self.assertEqual(list(k(array.array("f", [1, 1, 1, 1]), array.array("f", [5, 6, 7, 8]))), [4, 5, 6, 7])
        self.assertEqual(list(k(x=array.array("f", [1, 1, 1, 1]), z=array.array("f", [5, 6, 7, 8]))), [-4, -5, -6, -7])

    def test_two_dimensions_without_numpy(self):
        k = client().compile("y[M,N] = x[N,M]", x="f32[2,3]")
        y = k(memoryview(array.array("f", range(6))).cast("B").cast("f", [2, 3]))
        self.assertEqual(y.tolist(), [[0, 3], [1, 4], [2, 5]])

    def test_integers(self):
        k = client().compile("y[N] = x[N] + 1", x="i32[5]")
        self.assertEqual(list(k(array.array("i", range(5)))), [1, 2, 3, 4, 5])

    def test_out(self):
        k = client().compile("y[N] = x[N] * 2.0", x="f32[4]")
        y = array.array("f", [0] * 4)
        self.assertIs(k(array.array("f", range(4)), out=y), y)
        self.assertEqual(list(y), [0, 2, 4, 6])
        self.assertRaises(TypeError, k, array.array("f", range(4)), out=[y, y])

    def test_refusals(self):
        k = client().compile("y[N] = x[N] * 2.0", x="f32[4]")
        for wrong in (array.array("d", range(4)), array.array("f", range(5)), 3.0, bytes(16)):
            self.assertRaises(kiln.Unsupported, k, wrong)
        self.assertRaises(TypeError, k)
        self.assertRaises(TypeError, k, array.array("f", range(4)), array.array("f", range(4)))
        self.assertRaises(TypeError, k, q=array.array("f", range(4)))

    def test_threads_share_a_kernel(self):
        k = client().compile("s[M] +=! x[M,N]", x="f32[64,128]")
        x = memoryview(array.array("f", [1.0] * 64 * 128)).cast("B").cast("f", [64, 128])
        wrong = []
        def go():
            for _ in range(20):
                if list(k(x)) != [128.0] * 64:
                    wrong.append(1)
        threads = [threading.Thread(target=go) for _ in range(4)]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual(wrong, [])

    @unittest.skipUnless(np, "without NumPy")
    def test_numpy(self):
        r = np.random.default_rng(1)
        a, b = r.standard_normal((33, 65)).astype("f4"), r.standard_normal((65, 40)).astype("f4")
        c = client().compile(MATMUL, a=a, b=b)(a, b)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
        self.assertRaises(kiln.Unsupported, client().compile(MATMUL, a=a, b=b), a, np.asfortranarray(b))
        readonly = np.zeros_like(c)
        readonly.flags.writeable = False
        with self.assertRaises(kiln.Unsupported):
            client().compile(MATMUL, a=a, b=b)(a, b, out=readonly)
        x = r.standard_normal((2, 4, 9, 9)).astype("f4")
        w = r.standard_normal((6, 4, 3, 3)).astype("f4")
        y = client().compile(op="Conv", inputs={"x": x, "w": w}, attrs={"pads": [1, 1, 1, 1]})(x, w)
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        want = sum(np.einsum("nchw,fc->nfhw", padded[:, :, i:i + 9, j:j + 9], w[:, :, i, j]) for i in range(3) for j in range(3))
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)

    @unittest.skipUnless(np, "without NumPy")
    def test_gradient(self):
        x, dy = np.linspace(-1, 1, 8, dtype="f4"), np.ones(8, "f4")
        k = client().compile("y[N] = x[N] * x[N]", x="f32[8]", grad=["x"])
        np.testing.assert_allclose(k(**{n: {"x": x, "dy": dy}[n] for n in k.inputs}), 2 * x, rtol=1e-6)

    def test_pool(self):
        library = os.path.join(build, "libkiln-client.so")
        if not os.path.exists(library):
            self.skipTest("libkiln-client is not built")
        from kiln.native import Pool
        k = client().compile("y[M,N] = x[M,N] + 1.0", x="f32[512,512]")
        x = memoryview(array.array("f", [2.0] * 512 * 512)).cast("B").cast("f", [512, 512])
        with Pool(2, os.path.abspath(library)) as pool:
            for _ in range(20):
                self.assertTrue(all(v == 3.0 for v in k(x, pool=pool).cast("B").cast("f")))

    def test_tvm_ffi(self):
        try:
            import tvm_ffi  # noqa: F401
        except ImportError:
            self.skipTest("apache-tvm-ffi is not installed")
        k = client().compile("y[N] = x[N] * 2.0", x="f32[4]")
        x, y = np.arange(4, dtype="f4"), np.empty(4, "f4")
        k.tvm_ffi()(x, y)
        self.assertEqual(y.tolist(), [0, 2, 4, 6])

    def test_source_and_cuda(self):
        k = client().compile("y[N] = x[N] * 2.0", x="f32[1024]", target="nvidia-h200")
        self.assertIn(b"__global__", k.artifact("source"))
        self.assertRaises(kiln.Unsupported, k.artifact, "nothing")
        self.assertRaises(kiln.Unsupported, k, array.array("f", range(1024)))


class Problems(unittest.TestCase):
    def test_a_wrong_request_says_where(self):
        with self.assertRaises(kiln.ServiceError) as e:
            client().compile(MATMUL, a="f32[4,5]", b="f32[6,7]")
        self.assertEqual(e.exception.type, "/problems/shape-mismatch")
        self.assertIn("axis K", str(e.exception))
        with self.assertRaises(kiln.ServiceError) as e:
            client().compile(op="Matmul", inputs=["f32[4,5]", "f32[5,7]"])
        self.assertIn("MatMul", str(e.exception))

    def test_nobody_there(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{s.getsockname()[1]}"
            self.assertRaises(kiln.Unavailable, client("empty", url=url, timeout=2).compile, "y[N] = x[N] * 3.0", x="f32[4]")

    def test_addresses(self):
        self.assertRaises(ValueError, kiln.Client, "localhost:8787")

    def test_a_cpu_that_lacks_a_feature(self):
        k = client().compile("y[N] = x[N] * 2.0", x="f32[4]")
        k.manifest["target"]["features"] = k.manifest["target"]["features"] + ["avx9000"]
        fresh = kiln.Kernel(k.client, dict(k.answer))
        with self.assertRaises(kiln.Unsupported) as e:
            fresh(array.array("f", range(4)))
        self.assertIn("avx9000", str(e.exception))


class LocalCache(unittest.TestCase):
    def test_kept_when_the_service_is_away(self):
        first = client("away").compile("y[N] = x[N] * 5.0", x="f32[4]")
        first(array.array("f", range(4)))
        self.assertFalse(first.stale)
        service.stop()
        try:
            again = client("away").compile("y[N] = x[N] * 5.0", x="f32[4]")
            self.assertTrue(again.stale)
            self.assertEqual(list(again(array.array("f", range(4)))), [0, 5, 10, 15])
            self.assertRaises(kiln.Unavailable, client("away", timeout=2).compile, "y[N] = x[N] * 6.0", x="f32[4]")
        finally:
            service.start()

    def test_not_modified(self):
        first = client("again").compile("y[N] = x[N] * 7.0", x="f32[4]")
        c = client("again")
        seen = []
        call = c.transport.call
        c.transport.call = lambda *a, **k: seen.append(call(*a, **k)) or seen[-1]
        again = c.compile("y[N] = x[N] * 7.0", x="f32[4]")
        self.assertEqual([s[0] for s in seen], [304])
        self.assertEqual(again.key, first.key)
        self.assertIs(c.compile("y[N] = x[N] * 7.0", x="f32[4]"), again)

    def test_damaged_bytes_are_never_loaded(self):
        c = client("damaged")
        k = c.compile("y[N] = x[N] * 8.0", x="f32[4]")
        digest = next(a["sha256"] for a in k.answer["artifacts"] if a["kind"] == "so")
        good = c.blob(digest)
        path = c.cache._path("blobs", digest)
        with open(path, "r+b") as f:
            f.seek(len(good) // 2)
            f.write(b"\xff" * 16)
        self.assertIsNone(c.cache.blob(digest))
        self.assertFalse(os.path.exists(path))
        self.assertEqual(c.blob(digest), good)
        call = c.transport.call
        os.unlink(path)
        c.transport.call = lambda *a, **kw: (200, {}, good[:-1] + b"\0" if good[-1] else good[:-1] + b"\1")
        self.assertRaises(kiln.DigestError, c.blob, digest)
        self.assertRaises(kiln.DigestError, kiln.Kernel(c, k.answer), array.array("f", range(4)))
        c.transport.call = call
        self.assertEqual(list(kiln.Kernel(c, k.answer)(array.array("f", range(4)))), [0, 8, 16, 24])

    def test_a_cache_that_cannot_be_written(self):
        file = work + "/file"
        open(file, "w").close()
        k = kiln.Client(service.url, cache=file + "/below").compile("y[N] = x[N] * 2.0", x="f32[4]")
        self.assertEqual(list(k(array.array("f", range(4)))), [0, 2, 4, 6])

    def test_damaged_answer(self):
        c = client("answers")
        c.compile("y[N] = x[N] * 9.0", x="f32[4]")
        for folder, _, files in os.walk(work + "/answers/answers"):
            for f in files:
                with open(os.path.join(folder, f), "w") as broken:
                    broken.write("{")
        self.assertEqual(list(client("answers").compile("y[N] = x[N] * 9.0", x="f32[4]")(array.array("f", [1] * 4))), [9] * 4)


class UnixSocket(unittest.TestCase):
    def test_through_a_socket(self):
        """A byte pump from a Unix socket to the service."""
        path = work + "/socket"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(4)

            def pump(a, b):
                try:
                    while data := a.recv(65536):
                        b.sendall(data)
                except OSError:
                    pass
                finally:
                    for s in (a, b):
                        try:
                            s.shutdown(socket.SHUT_RDWR)
                        except OSError:
                            pass

            def serve():
                while True:
                    try:
                        near, _ = listener.accept()
                    except OSError:
                        return
                    far = socket.create_connection(("127.0.0.1", service.port))
                    threading.Thread(target=pump, args=(near, far), daemon=True).start()
                    threading.Thread(target=pump, args=(far, near), daemon=True).start()

            threading.Thread(target=serve, daemon=True).start()
            k = client("socket-cache", url="unix:" + path).compile("y[N] = x[N] * 2.0", x="f32[4]")
            self.assertEqual(list(k(array.array("f", range(4)))), [0, 2, 4, 6])


class Types(unittest.TestCase):
    def test_texts(self):
        self.assertEqual(arrays.parse_type("f32[4,5]"), ("f32", [4, 5]))
        self.assertEqual(arrays.parse_type("f32:4x5"), ("f32", [4, 5]))
        self.assertEqual(arrays.parse_type("f32[]"), ("f32", []))
        self.assertEqual(arrays.parse_type("i8"), ("i8", []))
        self.assertRaises(kiln.Unsupported, arrays.parse_type, "f32[N]")
        self.assertEqual(arrays.type_text(("bf16", (2, 3))), "bf16[2,3]")
        self.assertEqual(len(sha256(b"")), 64)


if __name__ == "__main__":
    try:
        result = unittest.main(exit=False, verbosity=1, warnings="ignore").result
    finally:
        service.stop()
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(0 if result.wasSuccessful() else 1)
