"""Models for the bench, as ONNX files with random weights: the light CNNs of the onnx wheel (their weights are one number each, which a runtime may
see through), MobileNet-V2's inverted residuals (Sandler et al., CVPR'18, table 2), a sentence encoder of MiniLM-L6's shape (Wang et al., NeurIPS'20)."""
import os
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LIGHT = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")


def scaled(r, shape, fan):
    return (r.standard_normal(shape) * np.sqrt(2 / fan)).astype("f4")


def light(name, batch, path):
    """The wheel's model with what its ConstantOfShape nodes made as random constants, and with another batch. The Softmax at its end is left out: after
    random weights one class has all of it, and no other number would be compared."""
    m, r = onnx.load(f"{LIGHT}/light_{name}.onnx"), np.random.default_rng(3)
    g = m.graph
    values = {i.name: i for i in g.initializer}
    use = {}
    for n in g.node:
        for k, i in enumerate(n.input):
            use.setdefault(i, (n.op_type, k))
    keep = []
    for n in g.node:
        if n.op_type != "ConstantOfShape":
            keep.append(n)
            continue
        shape = [int(x) for x in numpy_helper.to_array(values[n.input[0]])]
        op, k = use.get(n.output[0], ("", 0))
        if op in ("Conv", "Gemm", "MatMul") and k == 1:
            w = scaled(r, shape, np.prod(shape[1:]) if op == "Conv" else max(shape))
        elif op == "BatchNormalization" and k in (1, 4):
            w = (0.5 + r.random(shape)).astype("f4")
        else:
            w = (r.standard_normal(shape) * 0.1).astype("f4")
        g.initializer.append(numpy_helper.from_array(w, n.output[0]))
    read = {i for n in keep for i in n.input}
    del g.node[:]
    if keep[-1].op_type == "Softmax":
        last = keep.pop().output[0]
        keep[-1].output[0] = last
    g.node.extend(keep)
    constants = [i for i in g.initializer if i.name in read]
    inputs = [i for i in g.input if i.name in read and i.name not in {c.name for c in constants}]
    for c in constants:  # the shapes that reshapes name
        a = numpy_helper.to_array(c).copy()
        if use.get(c.name, ("", 0))[0] == "Reshape" and a.dtype == np.int64 and a[0] == 1:
            a[0] = batch
            c.CopyFrom(numpy_helper.from_array(a, c.name))
    del g.initializer[:], g.input[:], g.value_info[:]
    g.initializer.extend(constants)
    g.input.extend(inputs)
    for v in list(g.input) + list(g.output):
        v.type.tensor_type.shape.dim[0].dim_value = batch
    onnx.save(m, path)


class Builder:
    def __init__(self):
        self.r, self.nodes, self.constants, self.n = np.random.default_rng(5), [], [], 0

    def const(self, a):
        self.n += 1
        self.constants.append(numpy_helper.from_array(np.asarray(a), f"c{self.n}"))
        return f"c{self.n}"

    def node(self, op, *inputs, **attributes):
        self.n += 1
        self.nodes.append(helper.make_node(op, list(inputs), [f"v{self.n}"], **attributes))
        return f"v{self.n}"

    def save(self, name, inputs, output, path, opset=17):
        self.nodes[-1].output[0] = output[0]
        g = helper.make_graph(self.nodes, name, [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
                              [helper.make_tensor_value_info(output[0], TensorProto.FLOAT, output[1])], self.constants)
        onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)


def mobilenet(batch, path):
    b = Builder()
    lo, hi = b.const(np.float32(0)), b.const(np.float32(6))

    def conv(x, ci, co, k, s, g=1, clip=True):
        w, c = b.const(scaled(b.r, (co, ci // g, k, k), ci // g * k * k)), b.const((b.r.standard_normal(co) * 0.1).astype("f4"))
        y = b.node("Conv", x, w, c, kernel_shape=[k, k], strides=[s, s], pads=[k // 2] * 4, group=g)
        return b.node("Clip", y, lo, hi) if clip else y

    x, c = conv("x", 3, 32, 3, 2), 32
    for expand, out, times, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
        for i in range(times):
            s, wide = stride if i == 0 else 1, c * expand
            y = conv(x, c, wide, 1, 1) if expand > 1 else x
            y = conv(conv(y, wide, wide, 3, s, wide), wide, out, 1, 1, clip=False)
            x, c = (b.node("Add", x, y) if s == 1 and c == out else y), out
    x = b.node("Flatten", b.node("GlobalAveragePool", conv(x, c, 1280, 1, 1)))
    b.node("Gemm", x, b.const(scaled(b.r, (1280, 1000), 1280)), b.const(np.zeros(1000, "f4")))
    b.save("mobilenet", [("x", TensorProto.FLOAT, [batch, 3, 224, 224])], ("y", [batch, 1000]), path)


def minilm(batch, tokens, path, width=384, heads=12, inner=1536, layers=6, words=30522):
    b = Builder()

    def linear(x, i, o):
        return b.node("Add", b.node("MatMul", x, b.const(scaled(b.r, (i, o), 2 * i))), b.const((b.r.standard_normal(o) * 0.02).astype("f4")))

    def norm(x):
        return b.node("LayerNormalization", x, b.const((0.5 + b.r.random(width)).astype("f4")), b.const(np.zeros(width, "f4")), axis=-1, epsilon=1e-12)

    def split(x):
        return b.node("Transpose", b.node("Reshape", x, b.const(np.array([batch, tokens, heads, width // heads]))), perm=[0, 2, 1, 3])

    table = b.const((b.r.standard_normal((words, width)) * 0.02).astype("f4"))
    places = b.const((b.r.standard_normal((1, tokens, width)) * 0.02).astype("f4"))
    x, scale = norm(b.node("Add", b.node("Gather", table, "ids"), places)), b.const(np.float32((width // heads) ** -0.5))
    for _ in range(layers):
        q, k, v = (split(linear(x, width, width)) for _ in range(3))
        p = b.node("Mul", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), scale)
        y = b.node("MatMul", b.node("Softmax", b.node("Add", p, "mask"), axis=-1), v)
        y = b.node("Reshape", b.node("Transpose", y, perm=[0, 2, 1, 3]), b.const(np.array([batch, tokens, width])))
        x = norm(b.node("Add", x, linear(y, width, width)))
        up = linear(x, width, inner)
        gate = b.node("Add", b.node("Erf", b.node("Mul", up, b.const(np.float32(0.5 ** 0.5)))), b.const(np.float32(1)))
        x = norm(b.node("Add", x, linear(b.node("Mul", b.node("Mul", up, gate), b.const(np.float32(0.5))), inner, width)))
    b.node("ReduceMean", x, axes=[1], keepdims=0)
    b.save("minilm", [("ids", TensorProto.INT64, [batch, tokens]), ("mask", TensorProto.FLOAT, [batch, 1, 1, tokens])], ("y", [batch, width]), path)


def make(name, batch, folder):
    """The file of a model by name: a light CNN's, mobilenet, minilm16, minilm128."""
    path = f"{folder}/{name}_{batch}.onnx"
    if os.path.exists(path):
        return path
    if name == "mobilenet":
        mobilenet(batch, path)
    elif name.startswith("minilm"):
        minilm(batch, int(name[6:]), path)
    else:
        light(name, batch, path)
    return path
