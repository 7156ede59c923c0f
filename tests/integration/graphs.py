"""Whole models through a real service: outputs that another runtime computed, kernels shared between models, progress, cancel, another start,
refusals. Usage: graphs.py [BUILD]"""
import array, json, math, os, shutil, subprocess, sys, tempfile, threading, time, unittest
sys.path.append("tests")
from free_port import free_port

build = sys.argv.pop(1) if len(sys.argv) > 1 else "build"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "api", "python"))
import kiln

work = tempfile.mkdtemp()
port = free_port()
url = f"http://127.0.0.1:{port}"
process = None


def ready(at):
    t = kiln.Client(at, timeout=2).transport
    for _ in range(100):
        try:
            t.call("GET", "/readyz")
            return t
        except kiln.Error:
            time.sleep(0.1)
    raise SystemExit("the service did not start")


def start():
    global process
    process = subprocess.Popen([build + "/kilnd", "--listen", f"127.0.0.1:{port}", "--data", work + "/data", "--hwspecs", "hwspecs", "--socket", "none"],
                               stderr=open(work + "/log", "ab"))
    ready(url)


def stop():
    process.terminate()
    process.wait()


start()


def client():
    return kiln.Client(url, cache=f"{work}/cache", timeout=240)


def tensor(values, shape):
    return memoryview(array.array("f", values)).cast("B").cast("f", shape)


def run(model, data, **how):
    outs = model(*[tensor(data["inputs"][a["name"]], a["shape"]) for a in model.manifest["inputs"]], **how)
    outs = outs if isinstance(outs, list) else [outs]
    return {n: list(o.cast("B").cast("f")) for n, o in zip(model.outputs, outs)}


def load(name):
    with open(f"tests/data/{name}.onnx", "rb") as f, open(f"tests/data/{name}.json") as j:
        return f.read(), json.load(j)


def compiler(folder, first):
    """A C compiler that does `first`, in the shell's words, before it compiles a kernel."""
    os.makedirs(f"{work}/{folder}")
    with open(f"{work}/{folder}/cc", "w") as f:
        f.write(f'#!/bin/sh\nfor a; do case $a in *.c) {first} ;; esac; done\nexec {shutil.which("cc")} "$@"\n')
    os.chmod(f"{work}/{folder}/cc", 0o755)
    return f"{work}/{folder}/cc"


def beside(port, name, cc):
    """One more service, with a store and a compiler of its own."""
    return subprocess.Popen([build + "/kilnd", "--listen", f"127.0.0.1:{port}", "--data", f"{work}/{name}", "--hwspecs", "hwspecs"],
                            stderr=open(f"{work}/{name}.log", "ab"), env={**os.environ, "KILN_CC": cc, "TMPDIR": work})


class Models(unittest.TestCase):
    def agree(self, name, got, want):
        for n, values in want.items():
            self.assertEqual(len(got[n]), len(values))
            worst = max(abs(x - y) for x, y in zip(got[n], values)) / max(1.0, max(map(abs, values)))
            self.assertLess(worst, 1e-5, f"{name} {n}")

    def test_cnn(self):
        body, data = load("small_cnn")
        seen = []
        client().compile_onnx(body.replace(b"features", b"Features"), progress=lambda done, total: seen.append((done, total)))
        m = client().compile_onnx(body)
        self.agree("small_cnn", run(m, data), data["outputs"])
        self.agree("small_cnn again", run(m, data), data["outputs"])
        self.assertTrue(seen and all(d <= t for d, t in seen))
        steps = m.manifest["steps"]
        self.assertLess(len(steps), 14)  # of 21 nodes: what is element by element, views and the concatenation are gone
        self.assertTrue(any("Conv" in s["nodes"] and "Relu" in s["nodes"] and "Add" in s["nodes"] for s in steps), [s["nodes"] for s in steps])
        for s in steps: # a concatenation moves nothing, or is the step that brings channels back to the front (where 8 of them fill a vector)
            self.assertTrue("Concat" not in s["nodes"] or "Max" in s["nodes"], s["nodes"])
        answer = json.loads(client().transport.call("GET", "/v1/kernels/" + m.key)[2])
        self.assertEqual(answer["quality"]["verification"], "run")

    def test_block(self):
        body, data = load("small_block")
        m = client().compile_onnx(body)
        self.agree("small_block", run(m, data), data["outputs"])
        repeated = [s["kernel"] for s in m.manifest["steps"]]
        self.assertLess(len(set(repeated)), len(repeated))  # q, k and v are one kernel

    def test_the_same_again_is_a_hit(self):
        body, data = load("small_cnn")
        client().compile_onnx(body)
        status, headers, _ = client().transport.call("POST", "/v1/graphs", body, {"Content-Type": "application/onnx"})
        self.assertEqual(status, 200)
        self.assertIn("hit", headers["Cache-Status"])

    def test_another_model_shares_kernels_and_work_survives_an_end(self):
        """The same layers under other names, after the service was ended: nothing is compiled again."""
        body, data = load("small_cnn")
        client().compile_onnx(body)
        stop()
        start()
        other = body.replace(b"features", b"FEATURES")
        m = client().compile_onnx(other)
        self.assertTrue(all("hit" in k["cache_status"] for k in m.kernels), m.kernels)
        got = run(m, data)
        self.agree("other", {"y": got["y"], "features": got["FEATURES"]}, data["outputs"])

    def test_threads(self):
        library = os.path.abspath(os.path.join(build, "libkiln-client.so"))
        if not os.path.exists(library):
            self.skipTest("libkiln-client is not built")
        from kiln.native import Pool
        body, data = load("small_cnn")
        m = client().compile_onnx(body)
        with Pool(2, library) as pool:
            self.agree("two threads", run(m, data, pool=pool), data["outputs"])

    def test_calls_at_the_same_time(self):
        body, data = load("small_cnn")
        m = client().compile_onnx(body)
        wrong = []

        def go():
            for _ in range(5):
                try:
                    self.agree("at the same time", run(m, data), data["outputs"])
                except AssertionError as e:
                    wrong.append(e)
        threads = [threading.Thread(target=go) for _ in range(4)]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual(wrong, [])

    def test_cuda(self):
        """A device that is not here: plan and kernels, no function to run them on this host."""
        body, _ = load("small_block")
        m = client().compile_onnx(body, target="nvidia-h200")
        self.assertEqual(m.manifest["target"]["kind"], "gpu")
        self.assertRaises(kiln.Unsupported, m, *[tensor([0.0] * math.prod(a["shape"]), a["shape"]) for a in m.manifest["inputs"]])


class Jobs(unittest.TestCase):
    def test_cancel(self):
        """Kernels that nobody has asked for before, so that there is time."""
        nodes, x = [], "x"
        for i in range(12):
            nodes.append({"op": "Conv", "inputs": [x, f"w{i}"], "outputs": [f"t{i}"], "attrs": {"pads": [1, 1, 1, 1]}})
            x = f"t{i}"
        sizes = [3] + [5 + 2 * i for i in range(12)]
        inputs = [{"name": "x", "dtype": "f32", "shape": [1, 3, 19, 23]}]
        inputs += [{"name": f"w{i}", "dtype": "f32", "shape": [sizes[i + 1], sizes[i], 3, 3]} for i in range(12)]
        body = json.dumps({"graph": {"inputs": inputs, "nodes": nodes, "outputs": [x]}}).encode()
        t = client().transport
        status, headers, data = t.call("POST", "/v1/graphs", body, {"Content-Type": "application/json"})
        self.assertEqual(status, 202)
        where = headers["Location"]
        t.call("DELETE", where)
        for _ in range(300):
            now = json.loads(t.call("GET", where)[2])
            if now["state"] not in ("planning", "compiling", "linking"):
                break
            time.sleep(0.1)
        self.assertEqual(now["state"], "cancelled", now)
        self.assertLess(now["done"], 12)
        m = client().compile_graph(json.loads(body))  # taken up again: what was done is there
        hits = sum("hit" in k["cache_status"] for k in m.kernels)
        self.assertGreaterEqual(hits, now["done"])

    def refused(self, body, kind="application/onnx", path="/v1/graphs"):
        t = client().transport
        try:
            status, headers, data = t.call("POST", path, body, {"Content-Type": kind})
        except kiln.ServiceError as e:
            return e.status, e.problem
        self.assertEqual(status, 202)
        for _ in range(300):
            now = json.loads(t.call("GET", headers["Location"])[2])
            if now["state"] in ("failed", "succeeded"):
                break
            time.sleep(0.05)
        self.assertEqual(now["state"], "failed", now)
        return now["problem"]["status"], now["problem"]

    def test_refusals(self):
        body, _ = load("small_cnn")
        for wrong in (b"", b"\xff" * 40, body[:len(body) // 2], body.replace(b"MaxPool", b"NoSuchX")):
            status, problem = self.refused(wrong)
            self.assertTrue(400 <= status < 500, problem)
            self.assertTrue(problem.get("detail") or problem.get("title"), problem)
        self.assertIn("NoSuchX", json.dumps(self.refused(body.replace(b"MaxPool", b"NoSuchX"))[1]))
        self.assertEqual(self.refused(b"x", "text/html")[0], 415)
        self.assertEqual(self.refused(body, path="/v1/graphs?target=nothing")[0], 422)
        self.assertEqual(self.refused(body, path="/v1/graphs?dims=batch:0")[0], 422)
        self.assertEqual(self.refused(b'{"graph": 3}', "application/json")[0] // 100, 4)

    def test_body_around_the_graph(self):
        """Refused at once, with the place, before anything is accepted; a target of the body is the target."""
        graph = {"inputs": [{"name": "x", "dtype": "f32", "shape": [2, 3]}], "nodes": [{"op": "Relu", "inputs": ["x"], "outputs": ["y"]}], "outputs": ["y"]}
        t, kind = client().transport, {"Content-Type": "application/json"}
        for more, pointer in (({"target": {"name": "host"}}, "/target/name"), ({"target": {"id": "host", "flops": 1}}, "/target/flops"), ({"target": {}}, "/target/id"),
                              ({"target": 3}, "/target"), ({"target": "nothing"}, "/target"), ({"target": "x" * 500}, "/target"), ({"tarket": "host"}, "/tarket"),
                              ({"graph": []}, "/graph")):
            with self.assertRaises(kiln.ServiceError) as e:
                t.call("POST", "/v1/graphs", json.dumps({"graph": graph, **more}).encode(), kind)
            self.assertEqual((e.exception.status // 100, e.exception.problem.get("pointer")), (4, pointer), e.exception.problem)
        for target in ("nvidia-h200", {"id": "nvidia-h200"}):
            status, headers, data = t.call("POST", "/v1/graphs", json.dumps({"graph": graph, "target": target}).encode(), kind)
            key = json.loads(data)["key"]
            same = t.call("POST", "/v1/graphs?target=nvidia-h200", json.dumps({"graph": graph, "target": target}).encode(), kind)
            self.assertEqual((json.loads(same[2])["key"]), key)
            other = t.call("POST", "/v1/graphs?target=host", json.dumps({"graph": graph, "target": target}).encode(), kind)
            self.assertNotEqual((json.loads(other[2])["key"]), key)

    def test_another_compiler_plans_anew(self):
        """A service of another compiler over the same store does not take this one's plan for its own: the model's key holds the fingerprint."""
        body, _ = load("small_cnn")
        t, kind = client().transport, {"Content-Type": "application/onnx"}
        key = json.loads(t.call("POST", "/v1/graphs", body, kind)[2])["key"]
        with open(build + "/kilnd", "rb") as f: binary = f.read()
        mine = json.loads(t.call("GET", "/version")[2])["fingerprint"].encode()
        self.assertEqual(len(mine), 32)
        other = work + "/kilnd-other"
        with open(other, "wb") as f: f.write(binary.replace(mine, bytes(reversed(mine))))
        os.chmod(other, 0o755)
        at = free_port()
        p = subprocess.Popen([other, "--listen", f"127.0.0.1:{at}", "--data", work + "/data", "--hwspecs", "hwspecs", "--socket", "none"],
                             stderr=open(work + "/log2", "ab"), env={**os.environ, "KILN_WORKER": os.path.abspath(build + "/kiln-worker")})
        try:
            there = ready(f"http://127.0.0.1:{at}")
            self.assertNotEqual(json.loads(there.call("GET", "/version")[2])["fingerprint"].encode(), mine)
            status, headers, data = there.call("POST", "/v1/graphs", body, kind)
            self.assertNotEqual(json.loads(data)["key"], key)
        finally:
            p.terminate()
            p.wait()

    def test_a_kernel_that_fails_names_its_nodes(self):
        cc = compiler("bin", "echo broken >&2; exit 1")
        body, _ = load("small_cnn")
        at = free_port()
        p = beside(at, "broken", cc)
        try:
            t = ready(f"http://127.0.0.1:{at}")
            now = json.loads(t.call("POST", "/v1/graphs", body, {"Content-Type": "application/onnx"})[2])
            now = json.loads(t.call("GET", now["href"], headers={"Prefer": "wait=60"}, timeout=70)[2])
            self.assertEqual(now["state"], "failed")
            problem = now["problem"]
            self.assertRegex(problem["pointer"], "^/graph/node/[0-9]+$")
            self.assertIn("Conv", problem["nodes"] + problem["detail"])
            self.assertRegex(problem["detail"], "^kernel [0-9]+ of [0-9]+, step [0-9]+ \\(")
        finally:
            p.terminate()
            p.wait()

    def test_a_wait_ends_with_the_compile_or_its_time(self):
        cc = compiler("slow", "sleep 3")
        body, kind = load("small_cnn")[0], {"Content-Type": "application/onnx"}
        at, states = free_port(), []
        p = beside(at, "waits", cc)
        try:
            t = ready(f"http://127.0.0.1:{at}")
            where = t.call("POST", "/v1/graphs", body, kind)[1]["Location"]

            def wait(seconds):
                other = kiln.Client(f"http://127.0.0.1:{at}", timeout=60).transport
                _, headers, data = other.call("GET", where, headers={"Prefer": f"wait={seconds}"})
                states.append((json.loads(data)["state"], headers["Preference-Applied"]))
            wait(1)
            self.assertIn(states, ([("planning", "wait")], [("compiling", "wait")]))
            waiting = threading.Thread(target=wait, args=(50,))
            waiting.start()
            time.sleep(0.2)
            t.call("DELETE", where)
            waiting.join(30)
            self.assertEqual(states[1:], [("cancelled", "wait")])
            wait(50)
            self.assertEqual(states[2:], [("cancelled", None)])  # it is over: answered at once
        finally:
            p.terminate()
            p.wait()

    def test_unknown(self):
        for method in ("GET", "DELETE"):
            for key in ("kk1-" + "0" * 64, "nothing"):
                with self.assertRaises(kiln.ServiceError) as e:
                    client().transport.call(method, "/v1/graphs/" + key)
                self.assertEqual(e.exception.status, 404)


if __name__ == "__main__":
    try:
        result = unittest.main(exit=False, verbosity=1, warnings="ignore").result
    finally:
        stop()
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(0 if result.wasSuccessful() else 1)
