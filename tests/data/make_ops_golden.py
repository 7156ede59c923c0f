"""Writes ops_golden.txt: small operator cases with inputs and outputs computed here, by NumPy and plain loops, from the ONNX operator
documents (opset 21). Independent of Kiln's own code. usage: python3 make_ops_golden.py > ops_golden.txt"""
import itertools, json, math
from fractions import Fraction
import numpy as np

rng = np.random.default_rng(7)
def rand(*s): return np.round(rng.uniform(-2, 2, s), 3)

def conv(x, w, b=None, strides=None, pads=None, dilations=None, group=1):
    n = x.ndim - 2
    strides, dilations, pads = strides or [1] * n, dilations or [1] * n, pads or [0] * 2 * n
    x = np.pad(x, [(0, 0), (0, 0)] + [(pads[i], pads[n + i]) for i in range(n)])
    out = [(x.shape[2 + i] - (w.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(n)]
    y = np.zeros([x.shape[0], w.shape[0]] + out)
    per, cg = w.shape[0] // group, w.shape[1]
    for i in itertools.product(range(x.shape[0]), range(w.shape[0]), *[range(o) for o in out]):
        g = i[1] // per
        for k in itertools.product(range(cg), *[range(e) for e in w.shape[2:]]):
            at = tuple(i[2 + d] * strides[d] + k[1 + d] * dilations[d] for d in range(n))
            y[i] += x[(i[0], g * cg + k[0]) + at] * w[(i[1],) + k]
        if b is not None: y[i] += b[i[1]]
    return y

def conv_transpose(x, w, b=None, strides=None, pads=None, dilations=None, group=1, output_padding=None, output_shape=None, upper=False):
    n = x.ndim - 2
    strides, dilations, more = strides or [1] * n, dilations or [1] * n, output_padding or [0] * n
    full = [(x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1 + more[i] for i in range(n)]
    if output_shape:
        all_ = [max(full[i] - output_shape[i], 0) for i in range(n)]
        begin = [a // 2 if upper else a - a // 2 for a in all_]
        out = output_shape
    else:
        pads = pads or [0] * 2 * n
        begin, out = pads[:n], [full[i] - pads[i] - pads[n + i] for i in range(n)]
    fg, cg = w.shape[1], x.shape[1] // group
    y = np.zeros([x.shape[0], fg * group] + out)
    for i in itertools.product(*[range(e) for e in x.shape]): # scatter: every input adds a window
        for f in range(fg):
            for k in itertools.product(*[range(e) for e in w.shape[2:]]):
                at = tuple(i[2 + d] * strides[d] + k[d] * dilations[d] - begin[d] for d in range(n))
                if all(0 <= at[d] < out[d] for d in range(n)): y[(i[0], i[1] // cg * fg + f) + at] += x[i] * w[(i[1], f) + k]
    return y if b is None else y + b.reshape([1, -1] + [1] * n)

def pool(x, kernel, mode, strides=None, pads=None, dilations=None, ceil=0, include=0):
    n = x.ndim - 2
    strides, dilations, pads = strides or [1] * n, dilations or [1] * n, pads or [0] * 2 * n
    out = []
    for d in range(n):
        room = x.shape[2 + d] + pads[d] + pads[n + d] - (kernel[d] - 1) * dilations[d] - 1
        o = (math.ceil if ceil else math.floor)(room / strides[d]) + 1
        if ceil and (o - 1) * strides[d] >= x.shape[2 + d] + pads[d]: o -= 1
        out.append(o)
    y = np.zeros(list(x.shape[:2]) + out)
    for i in itertools.product(*[range(e) for e in y.shape]):
        seen, count = [], 0
        for k in itertools.product(*[range(e) for e in kernel]):
            at = [i[2 + d] * strides[d] + k[d] * dilations[d] - pads[d] for d in range(n)]
            inside = all(0 <= at[d] < x.shape[2 + d] for d in range(n))
            if inside: seen.append(x[i[:2] + tuple(at)])
            if inside or (include and all(at[d] < x.shape[2 + d] + pads[n + d] for d in range(n))): count += 1
        y[i] = max(seen) if mode == "max" else sum(seen) / count
    return y

erf = np.vectorize(math.erf)
def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)
def layernorm(x, g, b, axis, eps=1e-5):
    ax = tuple(range(axis % x.ndim, x.ndim))
    m = x.mean(ax, keepdims=True)
    y = (x - m) / np.sqrt(((x - m) ** 2).mean(ax, keepdims=True) + eps) * g
    return y if b is None else y + b

cases = []
def case(op, inputs, out, **attrs): cases.append((op, attrs, inputs, np.asarray(out)))

a, b = rand(3, 5), rand(5, 4)
case("MatMul", [a, b], a @ b)
a, b = rand(2, 1, 3, 5), rand(4, 5, 2); case("MatMul", [a, b], a @ b)
a, b = rand(5), rand(5, 4); case("MatMul", [a, b], a @ b)
a, b = rand(3, 5), rand(5); case("MatMul", [a, b], a @ b)
a, b = rand(5), rand(5); case("MatMul", [a, b], a @ b)
a, b, c = rand(5, 3), rand(4, 5), rand(4)
case("Gemm", [a, b, c], 0.5 * a.T @ b.T + 2 * c, transA=1, transB=1, alpha=0.5, beta=2.0)
a, b = rand(3, 5), rand(5, 4); case("Gemm", [a, b], a @ b)
a, b, c = rand(3, 5), rand(5, 4), rand(3, 1); case("Gemm", [a, b, c], a @ b + c)
x, w, q = rand(2, 4, 7, 6), rand(6, 2, 3, 2), rand(6)
case("Conv", [x, w, q], conv(x, w, q, [2, 1], [1, 0, 2, 1], [1, 2], 2), strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2], group=2)
x, w = rand(1, 3, 9), rand(4, 3, 3); case("Conv", [x, w], conv(x, w, pads=[1, 1]), pads=[1, 1])
x, w = rand(1, 4, 6, 6), rand(4, 1, 3, 3); case("Conv", [x, w], conv(x, w, pads=[1] * 4, group=4), pads=[1] * 4, group=4)
x, w = rand(1, 4, 5, 5), rand(8, 1, 3, 3); case("Conv", [x, w], conv(x, w, group=4), group=4)
x, w = rand(1, 3, 8, 8), rand(2, 3, 1, 1); case("Conv", [x, w], conv(x, w, strides=[2, 2]), strides=[2, 2])
x, w = rand(1, 2, 5, 6), rand(3, 2, 2, 3); case("Conv", [x, w], conv(x, w, strides=[2, 2], pads=[0, 0, 1, 1]), strides=[2, 2], auto_pad="SAME_UPPER")
for name, f in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)):
    x, y = rand(2, 3, 4), rand(3, 1); case(name, [x, y], f(x, y))
x, y = rand(4), rand(2, 3, 1); case("Add", [x, y], x + y)
x, y = rand(1, 3), rand(2, 1) + 5; case("Div", [x, y], x / y)
x = rand(3, 7)
case("Relu", [x], np.maximum(x, 0)); case("Sigmoid", [x], 1 / (1 + np.exp(-x))); case("Tanh", [x], np.tanh(x))
case("Exp", [x], np.exp(x)); case("Erf", [x], erf(x)); case("Sqrt", [x + 3], np.sqrt(x + 3))
case("Gelu", [x], 0.5 * x * (1 + erf(x / math.sqrt(2))))
case("Gelu", [x], 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))), approximate="tanh")
x = rand(2, 3, 5)
case("Softmax", [x], softmax(x, -1)); case("Softmax", [x], softmax(x, 1), axis=1)
case("ReduceSum", [x], x.sum((0, 2), keepdims=True), axes=[0, -1]); case("ReduceSum", [x], x.sum(), keepdims=0)
case("ReduceMean", [x], x.mean(1), axes=[1], keepdims=0); case("ReduceMax", [x], x.max(0, keepdims=True), axes=[0])
case("ReduceMin", [x], x.min(2, keepdims=True), axes=[2])
x = rand(1, 2, 7, 8)
case("MaxPool", [x], pool(x, [3, 3], "max", [2, 2], [1] * 4), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
case("MaxPool", [x], pool(x, [2, 2], "max", [2, 2], None, [1, 2], 1), kernel_shape=[2, 2], strides=[2, 2], dilations=[1, 2], ceil_mode=1)
case("AveragePool", [x], pool(x, [2, 3], "avg", [2, 1]), kernel_shape=[2, 3], strides=[2, 1])
case("AveragePool", [x], pool(x, [3, 3], "avg", [2, 2], [1] * 4), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
case("AveragePool", [x], pool(x, [3, 3], "avg", [1, 1], [1] * 4, include=1), kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
x, g, q = rand(2, 3, 6), rand(6), rand(6); case("LayerNormalization", [x, g, q], layernorm(x, g, q, -1))
x, g = rand(2, 3, 4), rand(3, 4); case("LayerNormalization", [x, g], layernorm(x, g, None, 1, 0.5), axis=1, epsilon=0.5)
x = rand(2, 3, 4); case("Transpose", [x], x.T); case("Transpose", [x], x.transpose(1, 2, 0), perm=[1, 2, 0])

x, w, q = rand(2, 3, 4), rand(3, 2, 3), rand(2); case("ConvTranspose", [x, w, q], conv_transpose(x, w, q))
x, w = rand(1, 3, 4, 3), rand(3, 2, 3, 3)
case("ConvTranspose", [x, w], conv_transpose(x, w, None, [2, 2], [1] * 4, None, 1, [1, 1]), strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
x, w = rand(2, 3, 4, 4), rand(3, 2, 4, 4); case("ConvTranspose", [x, w], conv_transpose(x, w, None, [2, 2], [1] * 4), strides=[2, 2], pads=[1] * 4)
x, w = rand(1, 2, 5, 3), rand(2, 3, 3, 2)
case("ConvTranspose", [x, w], conv_transpose(x, w, None, [3, 2], [2, 0, 1, 1], [2, 3]), strides=[3, 2], pads=[2, 0, 1, 1], dilations=[2, 3])
x, w = rand(1, 2, 5, 4), rand(2, 1, 3, 3)
case("ConvTranspose", [x, w], conv_transpose(x, w, None, [4, 6], None, [2, 4], 1, [1, 3]), strides=[4, 6], dilations=[2, 4], output_padding=[1, 3])
x, w, q = rand(1, 6, 3, 4), rand(6, 2, 3, 2), rand(4)
case("ConvTranspose", [x, w, q], conv_transpose(x, w, q, [2, 1], [1, 0, 0, 1], [1, 2], 2), strides=[2, 1], pads=[1, 0, 0, 1], dilations=[1, 2], group=2)
x, w = rand(1, 4, 3, 3), rand(4, 1, 3, 3); case("ConvTranspose", [x, w], conv_transpose(x, w, None, [2, 2], None, None, 4), strides=[2, 2], group=4)
x, w = rand(1, 2, 3, 3), rand(2, 2, 1, 1); case("ConvTranspose", [x, w], conv_transpose(x, w, None, [2, 2]), strides=[2, 2])
x, w = rand(1, 2, 3, 3), rand(2, 2, 3, 3)
case("ConvTranspose", [x, w], conv_transpose(x, w, None, [3, 3], output_shape=[10, 8]), strides=[3, 3], output_shape=[10, 8])
case("ConvTranspose", [x, w], conv_transpose(x, w, None, [2, 2], output_shape=[6, 6], upper=True), strides=[2, 2], auto_pad="SAME_UPPER")
x, w = rand(1, 2, 2, 3, 2), rand(2, 3, 2, 3, 3)
case("ConvTranspose", [x, w], conv_transpose(x, w, None, [2, 1, 2], [0, 1, 1, 1, 0, 1]), strides=[2, 1, 2], pads=[0, 1, 1, 1, 0, 1])

x = rand(2, 3, 5)
case("ReduceProd", [x], x.prod(1, keepdims=True), axes=[1]); case("ReduceL1", [x], abs(x).sum((0, 2)), axes=[0, -1], keepdims=0)
case("ReduceL2", [x], np.sqrt((x * x).sum(2, keepdims=True)), axes=[-1]); case("ReduceSumSquare", [x], (x * x).sum(), keepdims=0)
case("ReduceVariance", [x], x.var((0, 2)), axes=[0, 2], keepdims=0); case("ReduceVariance", [x], x.var(-1, ddof=1, keepdims=True), axes=[-1], correction=1)
case("ReduceVariance", [x], x.var(keepdims=True))
x = rand(2, 3, 4, 5)
case("GlobalAveragePool", [x], x.mean((2, 3), keepdims=True)); case("GlobalMaxPool", [x], x.max((2, 3), keepdims=True))
v = [rand(3), rand(3), rand(3), abs(rand(3))]
col = [e.reshape(1, 3, 1, 1) for e in v]
case("BatchNormalization", [x] + v, (x - col[2]) / np.sqrt(col[3] + 0.01) * col[0] + col[1], epsilon=0.01)
x = rand(2, 12, 2, 3) # after the ONNX document: reshape, transpose, reshape
case("DepthToSpace", [x], x.reshape(2, 2, 2, 3, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(2, 3, 4, 6), blocksize=2)
case("DepthToSpace", [x], x.reshape(2, 3, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 4, 6), blocksize=2, mode="CRD")
x = rand(1, 3, 4, 6); case("SpaceToDepth", [x], x.reshape(1, 3, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 12, 2, 3), blocksize=2)
x = rand(3, 7, 2)
case("CumSum", [x], x.cumsum(1), axis=1); case("CumSum", [x], x[:, :, ::-1].cumsum(2)[:, :, ::-1], axis=-1, reverse=1)
case("CumSum", [x], x.cumsum(0) - x, axis=0, exclusive=1); case("CumSum", [x], x[:, ::-1].cumsum(1)[:, ::-1] - x, axis=-2, exclusive=1, reverse=1)
x = rand(2, 137)
case("CumSum", [x], x.cumsum(1), axis=1); case("CumSum", [x], x[:, ::-1].cumsum(1)[:, ::-1] - x, axis=1, exclusive=1, reverse=1)
x = rand(2113); case("CumSum", [x], x.cumsum() - x, axis=0, exclusive=1)

def resize(x, sizes, mode="nearest", how="half_pixel", near="round_prefer_floor"):
    def place(o, d): # in fractions: no rounding decides which of two is nearer
        n, m = x.shape[d], sizes[d]
        if how == "align_corners": return Fraction(o * (n - 1), m - 1) if m > 1 else Fraction(0)
        if how == "asymmetric": return Fraction(o * n, m)
        if how == "pytorch_half_pixel" and m == 1: return Fraction(0)
        return Fraction((2 * o + 1) * n, 2 * m) - Fraction(1, 2)
    half = Fraction(1, 2)
    rounds = {"round_prefer_floor": lambda p: math.ceil(p - half), "round_prefer_ceil": lambda p: math.floor(p + half), "floor": math.floor, "ceil": math.ceil}
    y = np.zeros(sizes)
    for i in itertools.product(*[range(e) for e in sizes]):
        at = [place(i[d], d) for d in range(x.ndim)]
        clip = lambda p: tuple(min(max(p[d], 0), x.shape[d] - 1) for d in range(x.ndim))
        if mode == "nearest": y[i] = x[clip([rounds[near](p) for p in at])]
        else:
            for up in itertools.product([0, 1], repeat=x.ndim):
                weight = math.prod([(p - math.floor(p)) if u else 1 - (p - math.floor(p)) for p, u in zip(at, up)])
                if weight: y[i] += x[clip([math.floor(p) + u for p, u in zip(at, up)])] * float(weight)
    return y

x = rand(1, 2, 4, 5)
case("Resize", [x], resize(x, [1, 2, 8, 10]), sizes=[1, 2, 8, 10]); case("Resize", [x], resize(x, [1, 2, 3, 3]), sizes=[1, 2, 3, 3])
case("Resize", [x], resize(x, [1, 2, 7, 4], "nearest", "asymmetric", "floor"), sizes=[1, 2, 7, 4], coordinate_transformation_mode="asymmetric", nearest_mode="floor")
case("Resize", [x], resize(x, [1, 2, 7, 4], "nearest", "align_corners", "ceil"), sizes=[1, 2, 7, 4], coordinate_transformation_mode="align_corners", nearest_mode="ceil")
case("Resize", [x], resize(x, [1, 2, 2, 10], near="round_prefer_ceil"), sizes=[1, 2, 2, 10], nearest_mode="round_prefer_ceil")
case("Resize", [x], resize(x, [1, 2, 8, 7], "linear"), sizes=[1, 2, 8, 7], mode="linear"); case("Resize", [x], resize(x, [1, 2, 3, 2], "linear"), sizes=[1, 2, 3, 2], mode="linear")
for how in ("asymmetric", "align_corners", "pytorch_half_pixel"):
    case("Resize", [x], resize(x, [1, 2, 9, 1], "linear", how), sizes=[1, 2, 9, 1], mode="linear", coordinate_transformation_mode=how)
x = rand(3, 2, 4); case("Resize", [x], resize(x, [5, 3, 7], "linear"), sizes=[5, 3, 7], mode="linear")

x, w = rand(2, 3, 5, 6), rand(2, 4, 3, 3, 2)
case("BatchConv", [x, w], np.concatenate([conv(x[n:n + 1], w[n], None, [2, 1], [1, 0, 1, 1], [1, 2]) for n in range(2)]), strides=[2, 1], pads=[1, 0, 1, 1], dilations=[1, 2])
x, w = rand(3, 2, 7), rand(3, 2, 2, 3); case("BatchConv", [x, w], np.concatenate([conv(x[n:n + 1], w[n]) for n in range(3)]))
x, w = rand(1, 3, 5, 6), rand(2, 3, 3, 3, 4)
case("CapsuleConv", [x, w], np.stack([conv(x, w[..., j], None, [2, 2], [1] * 4) for j in range(4)], -1), strides=[2, 2], pads=[1] * 4)
x, w = rand(2, 3, 4, 5, 2, 3), rand(2, 3, 2, 3, 3, 4) # matrices of 2 by 3, times 3 by 4
case("CapsuleConv", [x, w], np.stack([np.stack([sum(conv(x[..., i, k], w[..., k, j], None, None, [0, 1, 1, 1]) for k in range(3)) for j in range(4)], -1)
                                      for i in range(2)], -2), pads=[0, 1, 1, 1])
x, w = rand(1, 2, 6, 2, 2), rand(3, 2, 3, 2, 2)
case("CapsuleConv", [x, w], np.stack([np.stack([sum(conv(x[..., i, k], w[..., k, j], None, [2], None, [2]) for k in range(2)) for j in range(2)], -1)
                                      for i in range(2)], -2), strides=[2], dilations=[2])
x, w, q, u, v = rand(1, 4, 5, 5), rand(6, 2, 3, 3), rand(6), rand(6), rand(6)
col = lambda e: e.reshape(1, -1, 1, 1)
y = conv(x, w, q, None, [1] * 4, None, 2)
case("FusedConv", [x, w, q], np.maximum(y, 0), pads=[1] * 4, group=2)
case("FusedConv", [x, w, q, u, v], np.maximum(y * col(u) + col(v), 0), pads=[1] * 4, group=2)
case("FusedConv", [x, w, q, u], y * col(u), pads=[1] * 4, group=2, activation="Identity")
x, w, q = rand(3, 12), rand(8, 3), rand(8)
grouped = lambda x, w, g: np.concatenate([a @ b.T for a, b in zip(np.split(x, g, 1), np.split(w, g, 0))], 1)
case("GroupedLinear", [x, w, q], grouped(x, w, 4) + q, group=4)
x, w = rand(2, 4), rand(12, 1); case("GroupedLinear", [x, w], grouped(x, w, 4), group=4)
x, w = rand(2, 4), rand(5, 4); case("GroupedLinear", [x, w], x @ w.T)
x, z, w, q = rand(3, 4), rand(3, 5), rand(6, 4, 5), rand(6)
case("Bilinear", [x, z, w], np.einsum("nk,mkl,nl->nm", x, w, z)); case("Bilinear", [x, z, w, q], np.einsum("nk,mkl,nl->nm", x, w, z) + q)
x, z = rand(2, 3, 4), rand(2, 3, 5); case("Bilinear", [x, z, w], np.einsum("abk,mkl,abl->abm", x, w, z))
def circulant(w): # [P, Q, B] -> [P*B, Q*B], each block from its first column
    b = w.shape[2]
    return np.block([[np.stack([np.roll(w[p, q], j) for j in range(b)], 1) for q in range(w.shape[1])] for p in range(w.shape[0])])
x, w = rand(3, 12), rand(2, 3, 4); case("BlockCirculantMatMul", [x, w], x @ circulant(w).T)
x = rand(2, 3, 10); case("BlockCirculantMatMul", [x, w], x @ circulant(w)[:, :10].T)
x, w = rand(5), rand(3, 1, 5); case("BlockCirculantMatMul", [x, w], circulant(w) @ x)
def nearest_circulant(x, b):
    y = np.zeros(x.shape)
    for i in range(x.shape[0] // b * b):
        for j in range(x.shape[1] // b * b):
            y[i, j] = np.mean([x[i // b * b + k, j // b * b + (j - i + k) % b] for k in range(b)])
    return y
x = rand(8, 12); case("BlockCirculantProjection", [x], nearest_circulant(x, 4), block=4)
x = rand(7, 11); case("BlockCirculantProjection", [x], nearest_circulant(x, 3), block=3)
def shift(x, index, kernel, dilation=1, stride=1):
    n = x.ndim - 2
    y = np.zeros(list(x.shape[:2]) + [-(-e // stride) for e in x.shape[2:]])
    for i in itertools.product(*[range(e) for e in y.shape]):
        digits = np.unravel_index(index[i[1]], [kernel] * n)
        at = [p * stride + (int(d) - kernel // 2) * dilation for p, d in zip(i[2:], digits)]
        if all(0 <= a < e for a, e in zip(at, x.shape[2:])): y[i] = x[i[:2] + tuple(at)]
    return y
x = rand(1, 20, 4, 5); even = [c // 2 if c < 18 else 4 for c in range(20)]
case("Shift", [x], shift(x, even, 3)); case("Shift", [x], shift(x, even, 3, 2), dilations=[2, 2]); case("Shift", [x], shift(x, even, 3, 1, 2), strides=[2, 2])
x, i = rand(2, 6, 7), rng.integers(0, 5, 6).astype(np.int32); case("Shift", [x, i], shift(x, i, 5), kernel_shape=[5])
x, i = rand(1, 5, 6, 4), rng.integers(0, 9, 5).astype(np.int64); case("Shift", [x, i], shift(x, i, 3, 2), dilations=[2, 2])
x, w = rand(2, 3, 4, 5), rand(2, 6, 4, 5); case("TransposedBatchMatMul", [x, w], np.einsum("bshd,bthd->bhst", x, w))
i8 = lambda *s: rng.integers(-128, 128, s).astype(np.int8)
u8 = lambda *s: rng.integers(0, 256, s).astype(np.uint8)
wide = lambda e: e.astype(np.int64)
a, b = i8(4, 7), i8(7, 5); case("MatMulInteger", [a, b], wide(a) @ wide(b))
a, b, c, d = u8(2, 4, 7), i8(7, 5), np.array(131, np.uint8), i8(5); case("MatMulInteger", [a, b, c, d], (wide(a) - 131) @ (wide(b) - wide(d)))
x, w, c, d = u8(1, 4, 6, 5), i8(6, 2, 3, 3), np.array([7], np.uint8), i8(6)
case("ConvInteger", [x, w], conv(wide(x), wide(w), None, [2, 1], [1] * 4, None, 2), strides=[2, 1], pads=[1] * 4, group=2)
case("ConvInteger", [x, w, c, d], conv(wide(x) - 7, wide(w) - wide(d).reshape(6, 1, 1, 1), None, None, [1] * 4, None, 2), pads=[1] * 4, group=2)

x = rand(3, 7); x[0, :3] = [0, -0.5, 0.5]
for name, f in (("Neg", np.negative), ("Abs", abs), ("Floor", np.floor), ("Ceil", np.ceil), ("Round", np.round), ("Sin", np.sin), ("Cos", np.cos), ("Tan", np.tan),
                ("Sinh", np.sinh), ("Cosh", np.cosh), ("Asinh", np.arcsinh), ("Sign", np.sign), ("Softplus", lambda v: np.log1p(np.exp(v))),
                ("Softsign", lambda v: v / (1 + abs(v))), ("HardSwish", lambda v: v * np.clip(v / 6 + 0.5, 0, 1)),
                ("Mish", lambda v: v * np.tanh(np.log1p(np.exp(v)))), ("Elu", lambda v: np.where(v < 0, np.exp(v) - 1, v)),
                ("Selu", lambda v: 1.05070102214813232421875 * np.where(v <= 0, 1.67326319217681884765625 * (np.exp(v) - 1), v)),
                ("ThresholdedRelu", lambda v: np.where(v > 1, v, 0)), ("HardSigmoid", lambda v: np.clip(0.2 * v + 0.5, 0, 1)),
                ("LeakyRelu", lambda v: np.where(v < 0, 0.01 * v, v)), ("Swish", lambda v: v / (1 + np.exp(-v)))):
    case(name, [x], f(x))
case("Neg", [np.array([3, -4])], [-3, 4]); case("Sign", [np.array([3, -4, 0])], [1, -1, 0])
case("Log", [abs(x) + 0.1], np.log(abs(x) + 0.1)); case("Reciprocal", [abs(x) + 1], 1 / (abs(x) + 1)); case("Acosh", [abs(x) + 1], np.arccosh(abs(x) + 1))
case("Atanh", [x / 3], np.arctanh(x / 3)); case("Elu", [x], np.where(x < 0, 0.3 * (np.exp(x) - 1), x), alpha=0.3); case("LeakyRelu", [x], np.where(x < 0, 0.3 * x, x), alpha=0.3)
case("Celu", [x], np.maximum(0, x) + np.minimum(0, 2 * (np.exp(x / 2) - 1)), alpha=2.0); case("HardSigmoid", [x], np.clip(0.4 * x + 0.2, 0, 1), alpha=0.4, beta=0.2)
case("Shrink", [x], np.where(x < -1, x + 0.5, np.where(x > 1, x - 0.5, 0)), bias=0.5, lambd=1.0); case("Swish", [x], x / (1 + np.exp(-2 * x)), alpha=2.0)
x, y = rand(2, 3, 4), rand(3, 1); x[0, :, 0] = y[:, 0]
for name, f in (("Equal", np.equal), ("Less", np.less), ("LessOrEqual", np.less_equal), ("Greater", np.greater), ("GreaterOrEqual", np.greater_equal)):
    case(name, [x, y], f(x, y)); case(name, [np.array([1, 2, 3]), np.array([2])], f([1, 2, 3], 2))
a, b = rng.integers(0, 2, (3, 4)).astype(bool), rng.integers(0, 2, 4).astype(bool)
for name, f in (("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor), ("Equal", np.equal)): case(name, [a, b], f(a, b))
bits_ = np.random.default_rng(11)
for t in (np.int8, np.uint8, np.int32, np.int64):
    low, high = (0, 256) if t == np.uint8 else (-128, 128) if t == np.int8 else (-2 ** 26, 2 ** 26)
    i, j = bits_.integers(low, high, (3, 5)).astype(t), bits_.integers(low, high, 5).astype(t)
    for name, f in (("And", np.bitwise_and), ("Or", np.bitwise_or), ("Xor", np.bitwise_xor)): case("Bitwise" + name, [i, j], f(i, j))
    case("BitwiseNot", [i], ~i)
    n = np.array([0, 1, 3, 7, 8 * i.itemsize + 1], t); wide_ = lambda v: v.astype(np.int64)
    case("BitShift", [i, n], np.where(n < 8 * i.itemsize, (wide_(i) << np.minimum(n, 63)).astype(t), 0), direction="LEFT")
    case("BitShift", [i, n], wide_(i) >> np.minimum(n, 8 * i.itemsize - 1) if t != np.uint8 else np.where(n < 8, wide_(i) >> np.minimum(n, 7), 0), direction="RIGHT")
case("Not", [a], ~a); case("Where", [a, x[0, :, :], y], np.where(a, x[0], y)); case("IsNaN", [x], np.isnan(x)); case("IsInf", [x], np.isinf(x), detect_negative=0)
z = rand(4)
for name, f in (("Max", np.maximum), ("Min", np.minimum), ("Sum", np.add)): case(name, [x, y, z], f(f(x, y), z)); case(name, [x], x)
case("Mean", [x, y, z], (x + y + z) / 3)
case("Pow", [abs(x), y], abs(x) ** y); case("Pow", [np.array([3, -2, 5]), np.array([2, 3, 0])], [9, -8, 1])
i, j = np.array([7, -7, 7, -7, 6]), np.array([3, 3, -3, -3, 3])
case("Mod", [i, j], np.mod(i, j)); case("Mod", [i, j], np.fmod(i, j), fmod=1); case("Mod", [x, y + 3], np.fmod(x, y + 3), fmod=1)
case("Mod", [np.array([200, 7], np.uint8), np.array([7], np.uint8)], [4, 0]); case("Div", [i, j], [2, -2, -2, 2, 2])
case("Div", [np.array([-128, -128, -128, -128, 127, 5, 0, 6], np.int8), np.array([7, 3, -128, 0, -128, -128, -128, 0], np.int8)], [-18, -42, 1, -128, 0, 0, 0, 6])
case("PRelu", [x, y], np.where(x < 0, y * x, x)); case("Clip", [x, np.array(-0.5), np.array(0.7)], np.clip(x, -0.5, 0.7)); case("Clip", [x], np.minimum(x, 0.25), max=0.25)
case("Clip", [i], np.clip(i, -3, 5), min=-3, max=5)
case("Cast", [x], np.trunc(x), to="i32"); case("Cast", [i], i, to="f32"); case("Cast", [i - 7], i != 7, to="bool")
p, q = rand(2, 1, 4), rand(2, 2, 4); case("Concat", [x, p, q], np.concatenate([x, p, q], 1), axis=1); case("Concat", [z, z], np.concatenate([z, z]), axis=-1)
x = rand(5, 6, 4)
case("Slice", [x], x[1:4, 5:0:-2], starts=[1, -1], ends=[4, 0], axes=[0, 1], steps=[1, -2]); case("Slice", [x], x[:, :, 1:], starts=[-3], ends=[9999], axes=[-1])
case("Slice", [x], x[::-1], starts=[99], ends=[-99], axes=[0], steps=[-1])
i = np.array([[0, -1], [3, 2]]); case("Gather", [x, i], x[i]); case("Gather", [x, i], x[:, i], axis=1); case("Gather", [x, np.array(2)], x[:, :, 2], axis=2)
i = rng.integers(-5, 5, (2, 6, 3)); case("GatherElements", [x, i], np.take_along_axis(x[:, :, :3], i, 0), axis=0)
i = np.array([[0, -1], [4, 2]]); case("GatherND", [x, i], x[i[:, 0], i[:, 1]])
i = np.array([[[1], [0]], [[-1], [2]]]); v = rand(2, 3, 2); case("GatherND", [v, i], np.stack([v[0, [1, 0]], v[1, [-1, 2]]]), batch_dims=1)
x = rand(3, 4)
case("Pad", [x], np.pad(x, [(1, 0), (2, 3)], constant_values=1.5), pads=[1, 2, 0, 3], value=1.5); case("Pad", [x], x[1:, :3], pads=[-1, 0, 0, -1])
for mode in ("reflect", "edge", "wrap"): case("Pad", [x], np.pad(x, [(2, 1), (3, 2)], mode=mode), pads=[2, 3, 1, 2], mode=mode)
case("Pad", [x], np.pad(x, [(0, 0), (1, 2)]), pads=[1, 2], axes=[-1])
v = rand(3, 1); case("Expand", [v], np.broadcast_to(v, (2, 3, 4)), shape=[2, 1, 4]); case("Tile", [x], np.tile(x, (2, 3)), repeats=[2, 3])
v = rand(2, 3, 4, 5); case("Reshape", [v], v.reshape(4, 3, 10), shape=[4, 3, -1]); case("Reshape", [v], v.reshape(2, 60), shape=[0, 60]); case("Reshape", [v], v.reshape(1, 6, 1, 20), shape=[1, 6, 1, 20])
x = np.round(rand(4, 5) * 2) / 2
for name, f in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
    case(name, [x], f(x, 0)[None]); case(name, [x], f(x, 1), axis=1, keepdims=0); case(name, [x], 4 - f(x[:, ::-1], 1), axis=-1, keepdims=0, select_last_index=1)
case("Hardmax", [x], np.eye(5)[np.argmax(x, 1)]); x = rand(3, 5); case("LogSoftmax", [x], np.log(softmax(x, -1))); case("LogSoftmax", [x], np.log(softmax(x, 0)), axis=0)
case("ReduceLogSum", [abs(x)], np.log(abs(x).sum(1, keepdims=True)), axes=[1]); case("ReduceLogSumExp", [x], np.log(np.exp(x).sum(0)), axes=[0], keepdims=0)
case("ReduceLogSumExp", [x], np.log(np.exp(x).sum(1, keepdims=True)), axes=[1])
x, g, q = rand(2, 4, 3, 5), rand(4), rand(4)
def spread(x, ax, eps): return (x - x.mean(ax, keepdims=True)) / np.sqrt(x.var(ax, keepdims=True) + eps)
case("InstanceNormalization", [x, g, q], spread(x, (2, 3), 1e-5) * g.reshape(1, 4, 1, 1) + q.reshape(1, 4, 1, 1))
case("GroupNormalization", [x, g, q], spread(x.reshape(2, 2, 2, 3, 5), (2, 3, 4), 0.1).reshape(x.shape) * g.reshape(1, 4, 1, 1) + q.reshape(1, 4, 1, 1), num_groups=2, epsilon=0.1)
case("MeanVarianceNormalization", [x], (x - x.mean((0, 2, 3), keepdims=True)) / (x.std((0, 2, 3), keepdims=True) + 1e-9))
case("LpNormalization", [x], x / np.sqrt((x * x).sum(-1, keepdims=True))); case("LpNormalization", [x], x / abs(x).sum(1, keepdims=True), axis=1, p=1)
g = rand(5); case("RMSNormalization", [x, g], x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g)
def lrn(x, size, alpha, beta, bias):
    y = np.zeros(x.shape)
    for c in range(x.shape[1]): y[:, c] = (x[:, max(0, c - (size - 1) // 2):min(x.shape[1], c + size // 2 + 1)] ** 2).sum(1)
    return x / (bias + alpha / size * y) ** beta
case("LRN", [x], lrn(x, 3, 1e-4, 0.75, 1), size=3); case("LRN", [x], lrn(x, 2, 0.5, 0.5, 2), size=2, alpha=0.5, beta=0.5, bias=2.0)
case("OneHot", [np.array([[0, -1], [2, 5]]), np.array([1.5, 7])], np.where(np.arange(4) == np.array([[0, 3], [2, 5]])[..., None], 7, 1.5), depth=4)
case("OneHot", [np.array([1, 2]), np.array([0.0, 1])], np.eye(3)[[1, 2]].T, depth=3, axis=0)
case("Trilu", [x], np.triu(x)); case("Trilu", [x], np.tril(x, -1), upper=0, k=-1)
a, b = rand(3, 4), rand(4, 5); case("Einsum", [a, b], a @ b, equation="ij,jk->ik"); case("Einsum", [a], a.T, equation="ij->ji"); case("Einsum", [a, a], (a * a).sum(), equation="ij,ij->")
a, b = rand(2, 3, 4), rand(2, 4, 5); case("Einsum", [a, b], a @ b, equation="...ij,...jk"); case("Einsum", [a], a.sum(-1), equation="...i->...")

x, z = rand(3, 4), np.array([3, 200], np.uint8)
case("CumProd", [x], x.cumprod(1), axis=1); case("CumProd", [x], x[::-1].cumprod(0)[::-1] / x, axis=0, exclusive=1, reverse=1)
case("Mod", [x, x[:, ::-1] + 0.3], np.mod(x, x[:, ::-1] + 0.3))
case("QuantizeLinear", [x, np.array(0.25), z[:1]], np.clip(np.round(x / 0.25) + 3, 0, 255)); case("QuantizeLinear", [x, np.array([0.5, 0.25, 1])], np.clip(np.round(x / np.array([[0.5], [0.25], [1]])), -128, 127), axis=0, output_dtype="i8")
q = u8(2, 4); case("DequantizeLinear", [q, np.array([0.5, 2]), z], (wide(q) - wide(z)[:, None]) * np.array([[0.5], [2]]), axis=0)
s = rand(2, 2); case("DequantizeLinear", [q, s], wide(q) * np.repeat(s, 2, 1), block_size=2)

def cubic(x, sizes, a=-0.75, exclude=False): # half_pixel, one axis after the other
    for d, m in enumerate(sizes):
        n, y = x.shape[d], []
        if m == n: continue
        for o in range(m):
            at = (o + 0.5) * n / m - 0.5
            f = math.floor(at)
            w = [(a + 2) * t ** 3 - (a + 3) * t ** 2 + 1 if t <= 1 else a * t ** 3 - 5 * a * t ** 2 + 8 * a * t - 4 * a for t in (abs(at - f - k) for k in (-1, 0, 1, 2))]
            if exclude: w = [v if 0 <= f + k - 1 < n else 0 for k, v in enumerate(w)]; w = [v / sum(w) for v in w]
            y.append(sum(v * x.take(min(max(f + k - 1, 0), n - 1), d) for k, v in enumerate(w)))
        x = np.stack(y, d)
    return x
x = rand(1, 2, 4, 5)
case("Resize", [x], cubic(x, [1, 2, 8, 7]), sizes=[1, 2, 8, 7], mode="cubic"); case("Resize", [x], cubic(x, [1, 2, 3, 5], -0.5, True), sizes=[1, 2, 3, 5], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1)

x = rand(3, 40); case("Atan", [x * 20], np.arctan(x * 20)); case("Asin", [x / 2], np.arcsin(x / 2)); case("Acos", [x / 2], np.arccos(x / 2))
case("Asin", [np.array([1.0, -1, 0])], np.arcsin([1.0, -1, 0])); case("Acos", [np.array([1.0, -1, 0])], np.arccos([1.0, -1, 0]))
x = rand(4, 5); i = np.array([[1, 0, 3], [-1, 2, 0]]); u = rand(2, 3)
def put(x, i, u, axis, f):
    y = x.copy()
    for at in np.ndindex(i.shape):
        to = list(at); to[axis] = i[at]; y[tuple(to)] = f(y[tuple(to)], u[at])
    return y
case("ScatterElements", [x, i, u], put(x, i, u, 0, lambda a, b: b)); case("ScatterElements", [x, i * 0 + 1, u], put(x, i * 0 + 1, u, 1, lambda a, b: a + b), axis=1, reduction="add")
case("ScatterElements", [x, i * 0 + 1, u], put(x, i * 0 + 1, u, 1, max), axis=-1, reduction="max")
x = rand(4, 3, 2); i = np.array([[[0], [2]], [[-1], [1]]]); u = rand(2, 2, 3, 2); y = x.copy(); y[[0, 2, 3, 1]] = u.reshape(4, 3, 2); case("ScatterND", [x, i, u], y)
i = np.array([[0, 1], [0, 1], [3, -1]]); u = rand(3, 2); y = x.copy(); np.add.at(y, (i[:, 0], i[:, 1]), u); case("ScatterND", [x, i, u], y, reduction="add")
x = rand(4, 3, 2); n = np.array([4, 1, 3]); y = x.copy()
for b in range(3): y[:n[b], b] = x[:n[b], b][::-1]
case("ReverseSequence", [x, n], y); case("ReverseSequence", [x.swapaxes(0, 1), n], y.swapaxes(0, 1), time_axis=1, batch_axis=0)
x = np.array([[3.0, 1, 3, -2, 5, 3], [0, 0, 0, 1, -1, 0]]); case("TopKIndices", [x], np.argsort(-x, 1, kind="stable")[:, :4], k=4); case("TopKIndices", [x.T], np.argsort(x.T, 0, kind="stable")[:2], k=2, axis=0, largest=0)
def sample(x, g, mode, border, corners):
    N, C, H, W = x.shape; y = np.zeros((N, C) + g.shape[1:3])
    for n, p, q in np.ndindex(*g.shape[:3]):
        u, v = [((t + 1) * (e - 1) / 2 if corners else ((t + 1) * e - 1) / 2) for t, e in zip(g[n, p, q], (W, H))]
        if border: u, v = min(max(u, 0), W - 1), min(max(v, 0), H - 1)
        near = [(np.round(v), np.round(u), 1)] if mode == "nearest" else [(np.floor(v) + a, np.floor(u) + b, (1 - abs(v - np.floor(v) - a)) * (1 - abs(u - np.floor(u) - b))) for a in (0, 1) for b in (0, 1)]
        for h, w, weight in near:
            if 0 <= h < H and 0 <= w < W: y[n, :, p, q] += weight * x[n, :, int(h), int(w)]
    return y
x, g = rand(2, 3, 4, 5), np.round(rng.uniform(-1.3, 1.3, (2, 3, 4, 2)), 2)
case("GridSample", [x, g], sample(x, g, "linear", False, False)); case("GridSample", [x, g], sample(x, g, "nearest", False, True), mode="nearest", align_corners=1)
case("GridSample", [x, g], sample(x, g, "linear", True, True), padding_mode="border", align_corners=1)

def col2im(x, image, block, strides=None, pads=None, dilations=None): # every element of every column is added where it lies
    n = len(image)
    strides, dilations, pads = strides or [1] * n, dilations or [1] * n, pads or [0] * 2 * n
    windows = [(image[i] + pads[i] + pads[n + i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(n)]
    c = x.shape[1] // int(np.prod(block))
    y, x = np.zeros([x.shape[0], c] + image), x.reshape([x.shape[0], c] + block + windows)
    for i in itertools.product(*[range(e) for e in x.shape]):
        at = [i[2 + n + d] * strides[d] + i[2 + d] * dilations[d] - pads[d] for d in range(n)]
        if all(0 <= at[d] < image[d] for d in range(n)): y[i[:2] + tuple(at)] += x[i]
    return y
x = rand(1, 5, 5); case("Col2Im", [x], col2im(x, [5, 5], [1, 5]), image_shape=[5, 5], block_shape=[1, 5])
x = rand(2, 18, 9); how = dict(strides=[2, 2], pads=[1, 0, 1, 1]); case("Col2Im", [x], col2im(x, [5, 6], [3, 3], **how), image_shape=[5, 6], block_shape=[3, 3], **how)
x = rand(1, 4, 18); how = dict(dilations=[2, 3], pads=[1, 1, 0, 2]); case("Col2Im", [x], col2im(x, [4, 6], [2, 2], **how), image_shape=[4, 6], block_shape=[2, 2], **how)
x = rand(1, 6, 3); how = dict(strides=[3]); case("Col2Im", [x], col2im(x, [10], [3], **how), image_shape=[10], block_shape=[3], **how)
# kernels dilated beyond their input: some of their elements meet padding only
x, w = rand(1, 3, 6, 6), rand(4, 3, 3, 3); case("Conv", [x, w], conv(x, w, None, None, [12] * 4, [12, 12]), pads=[12] * 4, dilations=[12, 12])
x, w = rand(2, 3, 5, 6), rand(4, 3, 5, 3); case("Conv", [x, w], conv(x, w, None, [1, 2], [8, 3, 8, 3], [4, 3]), strides=[1, 2], pads=[8, 3, 8, 3], dilations=[4, 3])
x, w = rand(1, 4, 3, 5), rand(4, 1, 3, 4); case("Conv", [x, w], conv(x, w, None, None, [4, 0, 5, 18], [5, 6], 4), pads=[4, 0, 5, 18], dilations=[5, 6], group=4)
# a few found one after the other, of equal ones too; many by their ranks, in blocks where the axis is long
for x in (np.array([[1, 3, 3, 3, -7, 0, 0, 9, 9, 1, 3, 2, 5]]), np.array([[4.0] * 12, [-3e38] * 11 + [2.5]]), rng.integers(-9, 9, (2, 19)).astype("int8"), rng.integers(0, 9, (2, 19)).astype("uint8")):
    case("TopKIndices", [x], np.argsort(-x.astype(float), 1, kind="stable")[:, :3], k=3); case("TopKIndices", [x.T], np.argsort(x.T, 0, kind="stable")[:3], k=3, axis=0, largest=0)
for x in (np.round(rng.uniform(-9, 9, (1, 601)), 1), rng.integers(-99, 99, (1, 601))):
    case("TopKIndices", [x], np.argsort(-x, 1, kind="stable")[:, :18], k=18); case("TopKIndices", [x], np.argsort(x, 1, kind="stable")[:, :18], k=18, largest=0)
# whole numbers whose result is computed in fractions: cut off, or rounded by Resize; truth as a number
n = rng.integers(-9, 10, (3, 4, 5)).astype(np.int32); p = np.abs(n).astype(np.int64) + 1
case("ReduceMean", [n], np.trunc(n.mean(1, keepdims=True)), axes=[1]); case("ReduceL1", [n], np.abs(n).sum(2), axes=[2], keepdims=0)
case("ReduceL2", [p], np.trunc(np.sqrt((p * p).sum(0, keepdims=True))), axes=[0]); case("ReduceSumSquare", [n], (n * n).sum((0, 1), keepdims=True), axes=[0, 1])
case("ReduceLogSum", [p], np.trunc(np.log(p.sum(2, keepdims=True))), axes=[2]); case("ReduceLogSumExp", [p], np.trunc(np.log(np.exp(p).sum(1))), axes=[1], keepdims=0)
case("ReduceMax", [n > 7], (n > 7).max(1, keepdims=True), axes=[1]); case("ReduceMin", [n > -7], (n > -7).min(2), axes=[2], keepdims=0)
u = rng.integers(0, 256, (1, 2, 4, 5)).astype(np.uint8)
case("Resize", [u], resize(u, [1, 2, 8, 10]), sizes=[1, 2, 8, 10]); case("Resize", [u], np.rint(resize(u.astype(float), [1, 2, 7, 4], "linear")), sizes=[1, 2, 7, 4], mode="linear")
case("Resize", [u], np.clip(np.rint(cubic(u.astype(float), [1, 2, 9, 7])), 0, 255), sizes=[1, 2, 9, 7], mode="cubic"); case("Abs", [u], u)
b = n.astype(np.int8); case("Shrink", [b], np.trunc(np.where(b < -2.5, b + 1.5, np.where(b > 2.5, b - 1.5, 0))), bias=1.5, lambd=2.5)
a, b, d = n[0], n[1], n[2][:, :1]
case("Gemm", [a, b, d], np.trunc(0.5 * (a @ b.T) + 1.5 * d), transB=1, alpha=0.5, beta=1.5); case("Gemm", [a, b, d], a @ b.T + d, transB=1)
case("Pow", [p, np.array([0.5, 1, 1.5, 2, 3])], np.trunc(p ** np.array([0.5, 1, 1.5, 2, 3]) * (1 + 1e-13)))
case("DequantizeLinear", [u, np.array(0.25)], u * 0.25, output_dtype="f16")
for n in (18, 23, 50, 97):
    x = rand(2, n, 3); case("CumSum", [x], x.cumsum(1), axis=1); case("CumSum", [x], x[:, ::-1].cumsum(1)[:, ::-1] - x, axis=1, exclusive=1, reverse=1)
for shape, axis, k in (((2, 300), 1, 20), ((301, 2), 0, 17), ((1, 1003), 1, 100)): # with equal elements in many blocks
    x = rng.integers(-40, 41, shape).astype(np.int32)
    for y in (x, x / 8): case("TopKIndices", [y], np.take(np.argsort(-y, axis, kind="stable"), range(k), axis), axis=axis, k=k)
    case("TopKIndices", [x], np.take(np.argsort(x, axis, kind="stable"), range(k), axis), axis=axis, k=k, largest=0)
x = rand(3, 70) # rows of ranges
for mode in ("reflect", "edge"):
    for pads in ((1, 5, 0, 7), (0, 0, 2, 3), (0, 69, 0, 0)): case("Pad", [x], np.pad(x, [(pads[0], pads[2]), (pads[1], pads[3])], mode), pads=list(pads), mode=mode)
for shape, axis, k in (((2, 600), 1, 200), ((603, 2), 0, 201), ((1, 2501), 1, 300), ((33001,), 0, 1500)): # selected by their keys' digits, with many equals
    x = rng.integers(-300, 301, shape).astype(np.int32); z = np.where(x == 0, rng.choice([0.0, -0.0], shape), x / 8)
    several = ((1, x // 60),) if x.size > 9999 else ((1, x), (0, x), (1, z), (0, z), (1, x.astype(np.int8)), (0, x.astype(np.uint8)))
    for largest, y in several:
        case("TopKIndices", [y], np.take(np.argsort(-y.astype(float) if largest else y, axis, kind="stable"), range(k), axis), axis=axis, k=k, largest=largest)
x = rand(2, 18, 25); how = dict(strides=[3, 2], pads=[1, 2, 2, 0]); case("Col2Im", [x], col2im(x, [13, 9], [3, 3], **how), image_shape=[13, 9], block_shape=[3, 3], **how)
x = rand(1, 20, 9); how = dict(strides=[3, 2], pads=[1, 0, 1, 1]); case("Col2Im", [x], col2im(x, [9, 9], [4, 5], **how), image_shape=[9, 9], block_shape=[4, 5], **how)
x = rand(1, 8, 6); how = dict(strides=[2, 2], dilations=[2, 3]); case("Col2Im", [x], col2im(x, [7, 7], [2, 2], **how), image_shape=[7, 7], block_shape=[2, 2], **how)
x = rand(2, 8, 12); how = dict(strides=[1, 2, 1], pads=[0, 1, 1, 0, 0, 1]); case("Col2Im", [x], col2im(x, [3, 4, 2], [2, 2, 2], **how), image_shape=[3, 4, 2], block_shape=[2, 2, 2], **how)
g = np.round(rng.uniform(-1.3, 1.3, (2, 3, 4, 2)), 2)
for x in (rng.integers(-90, 90, (2, 3, 4, 5)).astype(np.int32), u8(2, 9, 4, 5), rng.integers(0, 2, (2, 3, 4, 5)) > 0):
    case("GridSample", [x, g], sample(x, g, "nearest", False, False).astype(x.dtype), mode="nearest"); case("GridSample", [x, g], sample(x, g, "nearest", True, True).astype(x.dtype), mode="nearest", padding_mode="border", align_corners=1)
x, s = rng.integers(-900, 900, (3, 4)).astype(np.int32), np.array([2, 4, 8], np.int32); case("QuantizeLinear", [x, s], np.clip(np.round(x / s[:, None]), -128, 127), axis=0, output_dtype="i8")
print("# Source: make_ops_golden.py (NumPy and plain loops after the ONNX operator documents, opset 21).")
names = {"float64": "f32", "int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64", "bool": "bool"}
for op, attrs, inputs, out in cases:
    body = {"op": {"name": op, "attrs": attrs}, "inputs": [{"name": "i%d" % k, "dtype": names[x.dtype.name], "shape": list(x.shape)} for k, x in enumerate(inputs)]}
    print("case", json.dumps(body, separators=(",", ":")))
    for x in inputs: print("input", x.size, *["%.9g" % v for v in x.flatten()])
    print("output", "x".join(map(str, out.shape)) or "scalar", out.size, *["%.12g" % v for v in out.flatten()])
