"""Writes small_cnn.onnx and small_block.onnx with seeded weights, and beside each a JSON with inputs and the outputs that onnxruntime gives.
Needs the packages onnx, onnxruntime and numpy. Usage: make_small_models.py [FOLDER]"""
import json, os, sys
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

out = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(7)


class Model:
    def __init__(self, name, inputs, outputs):
        self.name, self.inputs, self.outputs, self.nodes, self.constants, self.n = name, inputs, outputs, [], [], 0

    def weight(self, *shape, low=-0.5, high=0.5):
        self.n += 1
        a = rng.uniform(low, high, shape).astype("f4")
        self.constants.append(numpy_helper.from_array(a, f"w{self.n}"))
        return f"w{self.n}"

    def numbers(self, *values):
        self.n += 1
        self.constants.append(numpy_helper.from_array(np.array(values, "i8"), f"i{self.n}"))
        return f"i{self.n}"

    def scalar(self, value):
        self.n += 1
        self.constants.append(numpy_helper.from_array(np.array(value, "f4"), f"c{self.n}"))
        return f"c{self.n}"

    def node(self, op, *inputs, to=None, **attrs):
        self.n += 1
        y = to or f"v{self.n}"
        self.nodes.append(helper.make_node(op, list(inputs), [y], name=f"{op.lower()}_{self.n}", **attrs))
        return y

    def norm(self, x, c):
        return self.node("BatchNormalization", x, self.weight(c, low=0.5, high=1.5), self.weight(c), self.weight(c), self.weight(c, low=0.5, high=1.5))

    def save(self):
        f = TensorProto.FLOAT
        graph = helper.make_graph(self.nodes, self.name, [helper.make_tensor_value_info(n, f, s) for n, s in self.inputs],
                                  [helper.make_tensor_value_info(n, f, s) for n, s in self.outputs], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="kiln tests")
        onnx.checker.check_model(model, full_check=True)
        path = os.path.join(out, self.name + ".onnx")
        onnx.save(model, path)
        feed = {n: rng.uniform(-1, 1, s).astype("f4") for n, s in self.inputs}
        got = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feed)
        with open(os.path.join(out, self.name + ".json"), "w") as to:
            json.dump({"inputs": {n: [round(float(x), 9) for x in a.ravel()] for n, a in feed.items()},
                       "outputs": {n: [float(f"{float(x):.7g}") for x in a.ravel()] for (n, _), a in zip(self.outputs, got)}}, to)
            to.write("\n")


def cnn():
    """Convolutions with normalisation, a residual, branches side by side, a split of channels, pooling, a dense layer."""
    m = Model("small_cnn", [("x", [1, 3, 16, 16])], [("y", [1, 10]), ("features", [1, 16, 8, 8])])
    a = m.node("Relu", m.norm(m.node("Conv", "x", m.weight(16, 3, 3, 3), pads=[1, 1, 1, 1]), 16))
    b = m.node("Conv", a, m.weight(16, 1, 3, 3), m.weight(16), pads=[1, 1, 1, 1], group=16)
    c = m.node("Relu", m.node("Add", m.norm(b, 16), a))
    p = m.node("MaxPool", c, kernel_shape=[2, 2], strides=[2, 2])
    one = m.node("Relu", m.node("Conv", p, m.weight(8, 16, 1, 1), m.weight(8)))
    two = m.node("Conv", p, m.weight(8, 16, 3, 3), m.weight(8), pads=[1, 1, 1, 1])
    cat = m.node("Concat", one, two, to="features", axis=1)
    t = m.node("Reshape", cat, m.numbers(1, 2, 8, 8, 8))
    t = m.node("Transpose", t, perm=[0, 2, 1, 3, 4])
    t = m.node("Reshape", t, m.numbers(1, 16, 8, 8))
    g = m.node("Flatten", m.node("GlobalAveragePool", m.node("Sigmoid", t)))
    m.node("Softmax", m.node("Gemm", g, m.weight(10, 16), m.weight(10), transB=1), to="y", axis=1)
    m.save()


def block():
    """One transformer block: attention with a mask, residuals, layer normalisation written out, GELU by Erf."""
    s, d, h = 12, 32, 4
    m = Model("small_block", [("x", [2, s, d]), ("mask", [2, 1, 1, s])], [("y", [2, s, d])])

    def norm(x):
        c = m.node("Sub", x, m.node("ReduceMean", x, axes=[-1], keepdims=1))
        v = m.node("ReduceMean", m.node("Pow", c, m.scalar(2.0)), axes=[-1], keepdims=1)
        n = m.node("Div", c, m.node("Sqrt", m.node("Add", v, m.scalar(1e-5))))
        return m.node("Add", m.node("Mul", n, m.weight(d, low=0.5, high=1.5)), m.weight(d))

    def heads(x):
        return m.node("Transpose", m.node("Reshape", x, m.numbers(2, s, h, d // h)), perm=[0, 2, 1, 3])

    def dense(x, n, k):
        return m.node("Add", m.node("MatMul", x, m.weight(k, n, low=-0.2, high=0.2)), m.weight(n))

    n = norm("x")
    q, k, v = (heads(dense(n, d, d)) for _ in range(3))
    scores = m.node("Mul", m.node("MatMul", q, m.node("Transpose", k, perm=[0, 1, 3, 2])), m.scalar((d // h) ** -0.5))
    p = m.node("Softmax", m.node("Add", scores, "mask"), axis=-1)
    o = m.node("Reshape", m.node("Transpose", m.node("MatMul", p, v), perm=[0, 2, 1, 3]), m.numbers(2, s, d))
    r = m.node("Add", dense(o, d, d), "x")
    f = dense(norm(r), 2 * d, d)
    e = m.node("Add", m.node("Erf", m.node("Div", f, m.scalar(2 ** 0.5))), m.scalar(1.0))
    g = m.node("Mul", m.node("Mul", f, e), m.scalar(0.5))
    m.node("Add", dense(g, d, 2 * d), r, to="y")
    m.save()


cnn()
block()
