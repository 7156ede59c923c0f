"""Models with nodes that Kiln cannot compile (partial=true): what is left to the caller stands in the answer, the client runs it, nothing is changed
silently. Usage: partial.py [BUILD]"""
import os, shutil, subprocess, sys, tempfile, time, unittest, warnings
sys.path.append("tests")
import numpy as np
import onnx_build as ob
from free_port import free_port

build = sys.argv.pop(1) if len(sys.argv) > 1 else "build"
import kiln

work = tempfile.mkdtemp()
port = free_port()
url = f"http://127.0.0.1:{port}"
process = subprocess.Popen([build + "/kilnd", "--listen", f"127.0.0.1:{port}", "--data", work + "/data", "--hwspecs", "hwspecs"],
                           stderr=open(work + "/log", "ab"))
client = kiln.Client(url, cache=work + "/cache", timeout=240)
for _ in range(100):
    try:
        client.transport.call("GET", "/readyz")
        break
    except kiln.Error:
        time.sleep(0.1)

rng = np.random.default_rng(1)
W = rng.standard_normal((8, 8)).astype("f4")
X = rng.standard_normal((4, 8)).astype("f4")


def weight(name="w"):
    return ob.constant(name, "f32", (8, 8), W.ravel().tolist())


def middle(op="Flip", domain="acme", declared=True, **attrs):
    """relu(x w) goes through a node that nobody knows, and both into what follows."""
    nodes = [ob.node("MatMul", ["x", "w"], ["a"]), ob.node("Relu", ["a"], ["b"]), ob.node(op, ["b"], ["c"], domain, "odd one", **attrs),
             ob.node("MatMul", ["c", "w"], ["d"]), ob.node("Add", ["d", "b"], ["y"])]
    infos = [ob.value("c", "f32", ("batch", 8))] if declared else []
    g = ob.graph(nodes, [ob.value("x", "f32", ("batch", 8))], [ob.value("y", "f32", ("batch", 8))], [weight()], infos)
    return ob.model(g, (("", 17), ("acme", 1)))


def expect(x, f):
    b = np.maximum(x @ W, 0)
    return f(b) @ W + b


def compile(model, **how):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return client.compile_onnx(model, dims={"batch": 4}, **how), [str(w.message) for w in said if issubclass(w.category, kiln.Fallback)]


def has(name):
    try:
        __import__(name)
        return True
    except ImportError:
        return False


PROGRAM = r"""
#include <kiln_client.h>
#include <stdio.h>
#include <string.h>
static int32_t flip(void *user, int32_t call, const void *const *in, void *const *out)
{
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 8; k++) ((float *)out[0])[i * 8 + k] = ((const float *)in[0])[i * 8 + 7 - k];
    return call || *(int *)user;
}
int main(int argc, char **argv)
{
    kiln_client_error e = {{0}};
    float x[32], y[32];
    const char *node;
    int wrong = 0;
    kiln_model *m = argc > 1 && fread(x, sizeof x, 1, stdin) ? kiln_model_open(argv[1], &e) : NULL;
    if (!m) return 2;
    const void *in[] = {x};
    void *out[] = {y};
    const char *op = kiln_model_call(m, 0, &node);
    fprintf(stderr, "%d %s %s\n", kiln_model_calls(m), op, node);
    fprintf(stderr, "%d\n", kiln_model_run(m, in, out, NULL, &e));
    kiln_model_set_caller(m, flip, &wrong);
    fprintf(stderr, "%d\n", kiln_model_run(m, in, out, NULL, &e));
    fwrite(y, sizeof y, 1, stdout);
    wrong = 1;
    kiln_model_run(m, in, out, NULL, &e);
    fprintf(stderr, "%s\n", strstr(e.message, "failed") ? "failed" : e.message);
    kiln_model_close(m);
    return 0;
}
"""


class Partial(unittest.TestCase):
    def test_refused_without(self):
        with self.assertRaises(kiln.ServiceError) as e:
            compile(middle())
        self.assertIn("acme.Flip", str(e.exception))

    def test_a_function_of_the_client(self):
        m, said = compile(middle(), partial=True, left={"acme.Flip": lambda b: b[:, ::-1]})
        call, = m.manifest["calls"]
        self.assertEqual((call["node"], call["op"], call["domain"], call["name"]), ("/graph/node/2", "Flip", "acme", "odd one"))
        self.assertEqual([(v["name"], v["dtype"], v["shape"]) for v in call["inputs"] + call["outputs"]], [("b", "f32", [4, 8]), ("c", "f32", [4, 8])])
        self.assertEqual([s["kernel"] < -1 for s in m.manifest["steps"]].count(True), 1)
        self.assertIn("acme.Flip (/graph/node/2)", said[0])
        for _ in range(2):
            np.testing.assert_allclose(m(X), expect(X, lambda b: b[:, ::-1]), rtol=2e-4, atol=2e-4)

    def test_wrong_results_are_refused(self):
        for f in (lambda b: b[:, :4], lambda b: b.astype("f8"), lambda b: (b, b)):
            m, _ = compile(middle(), partial=True, left={"acme.Flip": f})
            with self.assertRaisesRegex(kiln.Unsupported, "acme.Flip"):
                m(X)
        m, _ = compile(middle(), partial=True, left={"acme.Flip": lambda b: 1 / 0})
        with self.assertRaises(ZeroDivisionError):
            m(X)

    def test_a_shape_that_nobody_knows_is_held(self):
        """Behind a value without a shape nothing is compiled; what stands before it is."""
        m, _ = compile(middle(declared=False), partial=True, left={"acme.Flip": lambda b: -b, "MatMul": np.matmul, "Add": np.add})
        self.assertEqual([c["op"] for c in m.manifest["calls"]], ["Flip", "MatMul", "Add"])
        self.assertIn("no static shape", m.manifest["calls"][1]["why"])
        self.assertEqual([v.get("held", False) for v in m.manifest["calls"][0]["outputs"]], [True])
        self.assertFalse(m.manifest["outputs"][0].get("held"))  # the graph declares its output
        np.testing.assert_allclose(m(X), expect(X, lambda b: -b), rtol=2e-4, atol=2e-4)

    def test_shapes_that_the_data_decide(self):
        nodes = [ob.node("MatMul", ["x", "w"], ["a"]), ob.node("Relu", ["a"], ["b"]), ob.node("NonZero", ["b"], ["places"]),
                 ob.node("Transpose", ["places"], ["rows"], perm=[1, 0])]
        g = ob.graph(nodes, [ob.value("x", "f32", ("batch", 8))], [ob.value("rows", "i64", ("n", 2)), ob.value("b", "f32", ("batch", 8))], [weight()])
        f = {"NonZero": lambda b: np.array(np.nonzero(b)), "Transpose": lambda p: np.ascontiguousarray(p.T)}
        m, _ = compile(ob.model(g), partial=True, left=f)
        self.assertTrue(m.manifest["outputs"][0]["held"])
        for x in (X, -X):
            rows, b = m(x)
            np.testing.assert_array_equal(rows, np.argwhere(np.maximum(x @ W, 0) > 0))
            np.testing.assert_allclose(b, np.maximum(x @ W, 0), rtol=2e-4, atol=2e-5)

    def test_what_a_subgraph_reads_is_handed_over(self):
        branch = ob.graph([ob.node("Flip", ["b"], ["t"], "acme")], [], [ob.value("t", "f32", ("batch", 8))])
        other = ob.graph([ob.node("Neg", ["b"], ["e"])], [], [ob.value("e", "f32", ("batch", 8))])
        nodes = [ob.node("Relu", ["x"], ["b"]), ob.node("If", ["flag"], ["c"], then_branch=branch, else_branch=other), ob.node("Exp", ["c"], ["y"])]
        g = ob.graph(nodes, [ob.value("x", "f32", ("batch", 8)), ob.value("flag", "bool", ())], [ob.value("y", "f32", ("batch", 8))], (),
                     [ob.value("c", "f32", ("batch", 8))])
        m, _ = compile(ob.model(g, (("", 17), ("acme", 1))), partial=True, left={"If": lambda flag, b: b[:, ::-1] if flag else -b})
        self.assertEqual([v["name"] for v in m.manifest["calls"][0]["inputs"]], ["flag", "b"])
        for flag in (True, False):
            b = np.maximum(X, 0)
            np.testing.assert_allclose(m(X, np.array(flag)), np.exp(b[:, ::-1] if flag else -b), rtol=1e-5)

    def test_no_runtime(self):
        if has("onnxruntime") or has("onnx"):
            self.skipTest("there is one")
        with self.assertRaisesRegex(kiln.Unsupported, "nobody runs"):
            compile(middle(), partial=True)

    def test_another_runtime(self):
        if not has("onnxruntime") and not has("onnx"):
            self.skipTest("there is none")
        m, said = compile(middle("Unique", "", declared=True, sorted=1), partial=True)  # what it gives has another shape than the model says
        with self.assertRaisesRegex(kiln.Unsupported, "which the model says"):
            m(X)
        m, said = compile(self.seq(), partial=True)
        self.assertIn("left to onnx", said[0])
        np.testing.assert_allclose(m(X), np.concatenate([np.maximum(X @ W, 0)] * 2, 0), rtol=2e-4, atol=2e-4)

    @staticmethod
    def seq():
        """A sequence between two nodes: no tensor at all."""
        nodes = [ob.node("MatMul", ["x", "w"], ["a"]), ob.node("Relu", ["a"], ["b"]), ob.node("SequenceConstruct", ["b", "b"], ["s"]),
                 ob.node("ConcatFromSequence", ["s"], ["y"], axis=0)]
        return ob.model(ob.graph(nodes, [ob.value("x", "f32", ("batch", 8))], [ob.value("y", "f32", (8, 8))], [weight()]))

    def test_nothing_to_compile(self):
        g = ob.graph([ob.node("Flip", ["x"], ["y"], "acme")], [ob.value("x", "f32", ("batch", 8))], [ob.value("y", "f32", ("batch", 8))])
        with self.assertRaisesRegex(kiln.ServiceError, "no node of the model can be compiled"):
            compile(ob.model(g, (("", 17), ("acme", 1))), partial=True)

    def test_command_line(self):
        with open(work + "/m.onnx", "wb") as f:
            f.write(middle())
        env = {**os.environ, "KILN_URL": url}
        run = lambda *a: subprocess.run([build + "/kiln", *a], capture_output=True, text=True, env=env, timeout=120)
        seen = run("plan", work + "/m.onnx", "--dim", "batch=4", "--partial")
        self.assertIn("left to you: acme.Flip (/graph/node/2)", seen.stdout, seen.stderr)
        self.assertEqual(run("plan", work + "/m.onnx", "--dim", "batch=4").returncode, 65)
        seen = run("compile", work + "/m.onnx", "--dim", "batch=4", "--partial", "-o", work + "/m")
        self.assertEqual(seen.returncode, 0, seen.stderr)
        seen = run("run", work + "/m")
        self.assertNotEqual(seen.returncode, 0)
        self.assertIn("Flip (/graph/node/2)", seen.stderr)
        self.from_c(work + "/m")

    def from_c(self, folder):
        """The same folder in C: refused until it is told whom to call; then the caller's node is its input's mirror image."""
        with open(work + "/program.c", "w") as f:
            f.write(PROGRAM)
        library = os.path.abspath(build) + "/libkiln-client.so"
        os.symlink(library, work + "/libkiln-client.so.0")
        subprocess.run([os.environ.get("CC", "cc").split()[-1], "-std=c11", "-Wall", "-Wextra", "-Werror", "-Iapi/client", "-o", work + "/program",
                        work + "/program.c", library, "-Wl,-rpath," + work], check=True)
        with open(work + "/x", "wb") as f:
            f.write(X.tobytes())
        with open(work + "/x", "rb") as f:
            seen = subprocess.run([work + "/program", folder], stdin=f, capture_output=True, timeout=60)
        self.assertEqual(seen.stderr.decode(), "1 Flip /graph/node/2\n-1\n0\nfailed\n")
        np.testing.assert_allclose(np.frombuffer(seen.stdout, "f4").reshape(4, 8), expect(X, lambda b: b[:, ::-1]), rtol=2e-4, atol=2e-4)


class Functions(unittest.TestCase):
    def test_a_function_of_the_model(self):
        """Its own opset (axes were an attribute), an attribute with a default, an input left out, a call inside, an unknown node inside."""
        norm = ob.function("Norm", "acme", ["x", "scale"], ["y"], [ob.node("ReduceMean", ["x"], ["m"], axes=[-1]), ob.node("Sub", ["x", "m"], ["d"]),
                                                                ob.node("Gemm", ["d", "scale"], ["y"])], (("", 13),))
        head = ob.function("Head", "acme", ["x", "scale"], ["y", "unused"], [ob.node("Norm", ["x", "scale"], ["t"], "acme"), ob.node("Tanh", ["t"], ["y"]),
                                                                          ob.node("Abs", ["t"], ["unused"])], (("", 18), ("acme", 1)))
        g = ob.graph([ob.node("Head", ["x", "w"], ["y"], "acme")], [ob.value("x", "f32", ("batch", 8))], [ob.value("y", "f32", ("batch", 8))], [weight()])
        m, _ = compile(ob.model(g, (("", 18), ("acme", 1)), (norm, head)))
        self.assertNotIn("calls", m.manifest)
        np.testing.assert_allclose(m(X), np.tanh((X - X.mean(-1, keepdims=True)) @ W), rtol=2e-4, atol=2e-4)

    def test_one_that_cannot_be_compiled_is_left_whole(self):
        odd = ob.function("Head", "acme", ["x"], ["y"], [ob.node("Exp", ["x"], ["t"]), ob.node("Unknown", ["t"], ["y"])], (("", 18),))
        g = ob.graph([ob.node("Relu", ["x"], ["a"]), ob.node("Head", ["a"], ["b"], "acme"), ob.node("MatMul", ["b", "w"], ["y"])],
                     [ob.value("x", "f32", ("batch", 8))], [ob.value("y", "f32", ("batch", 8))], [weight()], [ob.value("b", "f32", ("batch", 8))])
        model = ob.model(g, (("", 18), ("acme", 1)), (odd,))
        with self.assertRaisesRegex(kiln.ServiceError, "Unknown"):
            compile(model)
        m, _ = compile(model, partial=True, left={"acme.Head": np.sin})
        self.assertEqual([c["node"] for c in m.manifest["calls"]], ["/graph/node/1"])
        np.testing.assert_allclose(m(X), np.sin(np.maximum(X, 0)) @ W, rtol=2e-4, atol=2e-4)


try:
    unittest.main(verbosity=0)
finally:
    process.terminate()
    process.wait()
    shutil.rmtree(work, ignore_errors=True)
