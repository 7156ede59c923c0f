"""Models for the bench, as ONNX files with random weights: the light CNNs of the onnx wheel (their weights are one number each, which a runtime may
see through), and the shapes of networks of other kinds, each named in its function."""
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
    """MobileNet-V2's inverted residuals (Sandler et al., CVPR'18, table 2)."""
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
    """A sentence encoder of MiniLM-L6's shape (Wang et al., NeurIPS'20)."""
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


def silu(b, x):
    return b.node("Mul", x, b.node("Sigmoid", x))


def gelu(b, x):
    gate = b.node("Add", b.node("Erf", b.node("Mul", x, b.const(np.float32(0.5 ** 0.5)))), b.const(np.float32(1)))
    return b.node("Mul", b.node("Mul", x, gate), b.const(np.float32(0.5)))


def bias(b, n):
    return b.const((b.r.standard_normal(n) * 0.02).astype("f4"))


def linear(b, x, i, o):
    return b.node("Add", b.node("MatMul", x, b.const(scaled(b.r, (i, o), 2 * i))), bias(b, o))


def layer_norm(b, x, width):
    return b.node("LayerNormalization", x, b.const((0.5 + b.r.random(width)).astype("f4")), bias(b, width), axis=-1, epsilon=1e-6)


def conv(b, x, ci, co, k, s=1, g=1, pad=None):
    w = b.const(scaled(b.r, (co, ci // g, k, k), ci // g * k * k))
    return b.node("Conv", x, w, bias(b, co), kernel_shape=[k, k], strides=[s, s], pads=[k // 2 if pad is None else pad] * 4, group=g)


def image(batch, size=224):
    return [("x", TensorProto.FLOAT, [batch, 3, size, size])]


def head(b, x, channels, classes=1000):
    """Means of all places, classes."""
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    return b.node("Gemm", x, b.const(scaled(b.r, (channels, classes), channels)), b.const(np.zeros(classes, "f4")))


def efficientnet(batch, path):
    """EfficientNet-B0's shapes (Tan and Le, ICML'19, table 1): inverted residuals with swish and with squeeze and excitation."""
    b = Builder()
    x, c = silu(b, conv(b, "x", 3, 32, 3, 2)), 32
    rows = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]
    for expand, out, times, stride, k in rows:
        for i in range(times):
            s, wide, few = stride if i == 0 else 1, c * expand, max(1, c // 4)
            y = silu(b, conv(b, x, c, wide, 1)) if expand > 1 else x
            y = silu(b, conv(b, y, wide, wide, k, s, wide))
            gate = b.node("Sigmoid", conv(b, silu(b, conv(b, b.node("GlobalAveragePool", y), wide, few, 1)), few, wide, 1))
            y = conv(b, b.node("Mul", y, gate), wide, out, 1)
            x, c = (b.node("Add", x, y) if s == 1 and c == out else y), out
    head(b, silu(b, conv(b, x, c, 1280, 1)), 1280)
    b.save("efficientnet", image(batch), ("y", [batch, 1000]), path)


def unet(batch, path, width=32, levels=4, size=128):
    """A U-Net (Ronneberger et al., MICCAI'15) with padded convolutions: the way up by transposed convolutions."""
    b = Builder()

    def twice(x, ci, co):
        return b.node("Relu", conv(b, b.node("Relu", conv(b, x, ci, co, 3)), co, co, 3))

    x, c, kept = "x", 3, []
    for i in range(levels):
        x = twice(x, c, width << i)
        kept, c = kept + [x], width << i
        x = b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x, c = twice(x, c, width << levels), width << levels
    for i in reversed(range(levels)):
        n = width << i
        x = b.node("ConvTranspose", x, b.const(scaled(b.r, (c, n, 2, 2), c)), bias(b, n), kernel_shape=[2, 2], strides=[2, 2])
        x, c = twice(b.node("Concat", kept[i], x, axis=1), 2 * n, n), n
    conv(b, x, c, 4, 1)
    b.save("unet", image(batch, size), ("y", [batch, 4, size, size]), path)


def detector(batch, path, size=320):
    """A one-stage detector in the manner of YOLO: swish, blocks that concatenate, pooling pyramid, Resize on the way up, boxes and classes of three scales."""
    b = Builder()

    def cbs(x, ci, co, k=1, s=1):
        return silu(b, conv(b, x, ci, co, k, s))

    def c2f(x, ci, co, n, shortcut=True):
        h = co // 2
        parts = [cbs(x, ci, h), cbs(x, ci, h)]
        for _ in range(n):
            y = cbs(cbs(parts[-1], h, h, 3), h, h, 3)
            parts.append(b.node("Add", parts[-1], y) if shortcut else y)
        return cbs(b.node("Concat", *parts, axis=1), h * len(parts), co)

    x = cbs(cbs("x", 3, 16, 3, 2), 16, 32, 3, 2)
    x = c2f(x, 32, 32, 1)
    p3 = c2f(cbs(x, 32, 64, 3, 2), 64, 64, 2)
    p4 = c2f(cbs(p3, 64, 128, 3, 2), 128, 128, 2)
    p5 = cbs(c2f(cbs(p4, 128, 256, 3, 2), 256, 256, 1), 256, 128)
    pools = [p5]
    for _ in range(3):
        pools.append(b.node("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4))
    p5 = cbs(b.node("Concat", *pools, axis=1), 512, 256)
    double = b.const(np.array([1, 1, 2, 2], "f4"))

    def up(x):
        return b.node("Resize", x, "", double, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")

    n4 = c2f(b.node("Concat", up(p5), p4, axis=1), 384, 128, 1, False)
    n3 = c2f(b.node("Concat", up(n4), p3, axis=1), 192, 64, 1, False)
    m4 = c2f(b.node("Concat", cbs(n3, 64, 64, 3, 2), n4, axis=1), 192, 128, 1, False)
    m5 = c2f(b.node("Concat", cbs(m4, 128, 128, 3, 2), p5, axis=1), 384, 256, 1, False)
    out, places = [], 0
    for y, c, s in ((n3, 64, 8), (m4, 128, 16), (m5, 256, 32)):
        boxes = conv(b, cbs(cbs(y, c, 64, 3), 64, 64, 3), 64, 64, 1)
        kinds = conv(b, cbs(cbs(y, c, 80, 3), 80, 80, 3), 80, 80, 1)
        n = (size // s) ** 2
        out.append(b.node("Reshape", b.node("Concat", boxes, kinds, axis=1), b.const(np.array([batch, 144, n]))))
        places += n
    y = b.node("Concat", *out, axis=2)
    one = b.const(np.array([1]))
    boxes = b.node("Slice", y, b.const(np.array([0])), b.const(np.array([64])), one)
    kinds = b.node("Sigmoid", b.node("Slice", y, b.const(np.array([64])), b.const(np.array([144])), one))
    d = b.node("Transpose", b.node("Reshape", boxes, b.const(np.array([batch, 4, 16, places]))), perm=[0, 2, 1, 3])
    d = b.node("Conv", b.node("Softmax", d, axis=1), b.const(np.arange(16, dtype="f4").reshape(1, 16, 1, 1)), kernel_shape=[1, 1])
    b.node("Concat", b.node("Reshape", d, b.const(np.array([batch, 4, places]))), kinds, axis=1)
    b.save("detector", image(batch, size), ("y", [batch, 84, places]), path)


def attend(b, x, batch, tokens, width, heads, mask=None):
    """Self-attention as exporters write it: one product for queries, keys and values, which are split behind it."""
    qkv = b.node("Reshape", linear(b, x, width, 3 * width), b.const(np.array([batch, tokens, 3, heads, width // heads])))
    qkv = b.node("Transpose", qkv, perm=[2, 0, 3, 1, 4])
    q, k, v = (b.node("Gather", qkv, b.const(np.int64(i)), axis=0) for i in range(3))
    p = b.node("MatMul", b.node("Mul", q, b.const(np.float32((width // heads) ** -0.5))), b.node("Transpose", k, perm=[0, 1, 3, 2]))
    p = b.node("Softmax", b.node("Add", p, mask) if mask else p, axis=-1)
    y = b.node("Transpose", b.node("MatMul", p, v), perm=[0, 2, 1, 3])
    return linear(b, b.node("Reshape", y, b.const(np.array([batch, tokens, width]))), width, width)


def block(b, x, batch, tokens, width, heads, mask=None, activation=gelu):
    """A layer of a transformer with normalisations in front."""
    x = b.node("Add", x, attend(b, layer_norm(b, x, width), batch, tokens, width, heads, mask))
    return b.node("Add", x, linear(b, activation(b, linear(b, layer_norm(b, x, width), width, 4 * width)), 4 * width, width))


def vit(batch, path, width=192, heads=3, layers=12, patch=16, size=224):
    """ViT-Tiny's shapes (Touvron et al., ICML'21, table 1)."""
    b = Builder()
    n = (size // patch) ** 2
    x = conv(b, "x", 3, width, patch, patch, pad=0)
    x = b.node("Transpose", b.node("Reshape", x, b.const(np.array([batch, width, n]))), perm=[0, 2, 1])
    x = b.node("Concat", b.const((b.r.standard_normal((batch, 1, width)) * 0.02).astype("f4")), x, axis=1)
    x = b.node("Add", x, b.const((b.r.standard_normal((1, n + 1, width)) * 0.02).astype("f4")))
    for _ in range(layers):
        x = block(b, x, batch, n + 1, width, heads)
    x = b.node("Gather", layer_norm(b, x, width), b.const(np.int64(0)), axis=1)
    b.node("Gemm", x, b.const(scaled(b.r, (width, 1000), width)), b.const(np.zeros(1000, "f4")))
    b.save("vit", image(batch, size), ("y", [batch, 1000]), path)


def gpt(batch, path, tokens=64, width=384, heads=6, layers=6, words=8192):
    """A decoder of GPT-2's structure, a prompt at once: causal mask, GELU by tanh, the words' table again as the last product."""
    b = Builder()

    def tanh_gelu(b, x):
        cube = b.node("Mul", b.node("Pow", x, b.const(np.float32(3))), b.const(np.float32(0.044715)))
        inner = b.node("Mul", b.node("Add", x, cube), b.const(np.float32(0.7978845608)))
        return b.node("Mul", b.node("Mul", x, b.const(np.float32(0.5))), b.node("Add", b.node("Tanh", inner), b.const(np.float32(1))))

    table = (b.r.standard_normal((words, width)) * 0.05).astype("f4")
    x = b.node("Add", b.node("Gather", b.const(table), "ids"), b.const((b.r.standard_normal((tokens, width)) * 0.02).astype("f4")))
    mask = b.const(np.triu(np.full((tokens, tokens), -1e9, "f4"), 1)[None, None])
    for _ in range(layers):
        x = block(b, x, batch, tokens, width, heads, mask, tanh_gelu)
    b.node("MatMul", layer_norm(b, x, width), b.const(np.ascontiguousarray(table.T)))
    b.save("gpt", [("ids", TensorProto.INT64, [batch, tokens])], ("y", [batch, tokens, words]), path)


def convnext(batch, path, widths=(96, 192, 384, 768), depths=(3, 3, 9, 3)):
    """ConvNeXt-T (Liu et al., CVPR'22): depthwise 7x7, normalisation over channels, two products, as exporters write them between transposes."""
    b = Builder()

    def channels(x, width):
        x = b.node("Transpose", x, perm=[0, 2, 3, 1])
        return b.node("Transpose", layer_norm(b, x, width), perm=[0, 3, 1, 2])

    x = channels(conv(b, "x", 3, widths[0], 4, 4, pad=0), widths[0])
    for i, (w, n) in enumerate(zip(widths, depths)):
        if i:
            x = conv(b, channels(x, widths[i - 1]), widths[i - 1], w, 2, 2, pad=0)
        for _ in range(n):
            y = layer_norm(b, b.node("Transpose", conv(b, x, w, w, 7, 1, w), perm=[0, 2, 3, 1]), w)
            y = linear(b, gelu(b, linear(b, y, w, 4 * w)), 4 * w, w)
            y = b.node("Mul", b.const((b.r.random(w) * 0.2).astype("f4")), y)
            x = b.node("Add", x, b.node("Transpose", y, perm=[0, 3, 1, 2]))
    x = layer_norm(b, b.node("Flatten", b.node("GlobalAveragePool", x)), widths[-1])
    b.node("Gemm", x, b.const(scaled(b.r, (widths[-1], 1000), widths[-1])), b.const(np.zeros(1000, "f4")))
    b.save("convnext", image(batch), ("y", [batch, 1000]), path)


def recurrent(op, gates):
    def build(batch, path, steps=64, width=128, hidden=256, layers=2):
        """Two layers, both directions, of which the second reads what both of the first give."""
        b, x, n = Builder(), "x", width
        for _ in range(layers):
            w, r = (b.const(scaled(b.r, (2, gates * hidden, k), 2 * k)) for k in (n, hidden))
            c = b.const((b.r.standard_normal((2, 2 * gates * hidden)) * 0.02).astype("f4"))
            y = b.node(op, x, w, r, c, hidden_size=hidden, direction="bidirectional", **({"linear_before_reset": 1} if op == "GRU" else {}))
            x, n = b.node("Reshape", b.node("Transpose", y, perm=[0, 2, 1, 3]), b.const(np.array([steps, batch, 2 * hidden]))), 2 * hidden
        linear(b, x, n, 40)
        b.save(op.lower(), [("x", TensorProto.FLOAT, [steps, batch, width])], ("y", [steps, batch, 40]), path)
    return build


MADE = {"mobilenet": mobilenet, "minilm16": lambda batch, path: minilm(batch, 16, path), "minilm128": lambda batch, path: minilm(batch, 128, path),
        "efficientnet": efficientnet, "unet": unet, "detector": detector, "vit": vit, "gpt": gpt, "convnext": convnext, "lstm": recurrent("LSTM", 4),
        "gru": recurrent("GRU", 3)}


def make(name, batch, folder):
    """The file of a model by name: one of MADE, else a light CNN's."""
    path = f"{folder}/{name}_{batch}.onnx"
    if not os.path.exists(path):
        MADE[name](batch, path) if name in MADE else light(name, batch, path)
    return path
