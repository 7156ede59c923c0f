"""com.microsoft's operators through a real service: each against NumPy's account of what its document says, and against onnxruntime where this Python
has it. Usage: microsoft.py [BUILD]"""
import math, sys, tempfile
sys.path.append("tests")
import numpy as np
import onnx_build as ob
from service import Checks, Service

build = sys.argv[1] if len(sys.argv) > 1 else "build"
import kiln

try:
    import onnxruntime
except ImportError:
    onnxruntime = None
rng = np.random.default_rng(7)
check = Checks()
NAMES = {"f4": "f32", "u1": "u8", "i1": "i8", "i4": "i32", "i8": "i64"}


def f(*shape): return rng.standard_normal(shape).astype("f4")
def u8(*shape): return rng.integers(0, 256, shape).astype("u1")
def i8(*shape): return rng.integers(-128, 128, shape).astype("i1")
def scale(x): return np.float32(x)
def zero(x, t="u1"): return np.array(x, t)
def softmax(x): return np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)
def sigmoid(x): return 1 / (1 + np.exp(-x))
def gelu(x): return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
def gelu_tanh(x): return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x ** 3)))
def number(x, s, z): return (x.astype("f4") - np.float32(z)) * np.float32(s)
def norm(x, g, b, eps): return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * g + b
def rms(x, g, eps): return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * g


def byte(x, s, z, t="u1"):
    low, high = (0, 255) if t == "u1" else (-128, 127)
    return np.clip(np.rint(x / np.float32(s)) + np.float32(z), low, high).astype(t)


def heads(x, n):
    b, s, w = x.shape
    return x.reshape(b, s, n, w // n).transpose(0, 2, 1, 3)


def attend(q, k, v, bias=0, scale=None):
    p = softmax(q @ k.transpose(0, 1, 3, 2) * (scale or 1 / math.sqrt(q.shape[-1])) + bias)
    y = (p @ v).transpose(0, 2, 1, 3)
    return y.reshape(*y.shape[:2], -1)


def turned(x, cos, sin, places, heads):
    b, s, w = x.shape
    x = x.reshape(b, s, heads, w // heads)
    half = cos.shape[1]
    c, n = cos[places][:, :, None], sin[places][:, :, None]
    a, d = x[..., :half], x[..., half:2 * half]
    return np.concatenate([a * c - d * n, a * n + d * c, x[..., 2 * half:]], -1).reshape(b, s, w)


def conv1(x, w, b): # 1x1
    return np.einsum("nchw,fc->nfhw", x, w[:, :, 0, 0]) + b[None, :, None, None]


def nbits(n, k, size, bits):
    """Random weights: packed, scales, packed zero points, what they stand for [n, k]."""
    blocks = -(-k // size)
    q, s, z = rng.integers(0, 1 << bits, (n, blocks, size)).astype("u1"), np.abs(f(n, blocks)) + 0.1, rng.integers(0, 1 << bits, (n, blocks)).astype("u1")
    plain = ((q.astype("f4") - z[..., None]) * s[..., None]).reshape(n, -1)[:, :k]
    if bits == 4:
        z = np.concatenate([z, np.zeros((n, blocks % 2), "u1")], 1)
        q, z = q[..., ::2] | q[..., 1::2] << 4, z[:, ::2] | z[:, 1::2] << 4
    return q, s, z, plain


def cases():
    """op, inputs (None: left out), attributes, what comes out."""
    x, b, y = f(2, 5, 12), f(12), f(2, 5, 12)
    yield "Gelu", [x], {}, [gelu(x)]
    yield "BiasGelu", [x, b], {}, [gelu(x + b)]
    yield "FastGelu", [x], {}, [gelu_tanh(x)]
    yield "FastGelu", [x, b], {}, [gelu_tanh(x + b)]
    yield "QuickGelu", [x], {"alpha": 1.5}, [x * sigmoid(np.float32(1.5) * x)]
    a, w = f(2, 3, 7), f(2, 4, 7)
    yield "FusedMatMul", [a, w], {"transB": 1, "alpha": 0.5}, [0.5 * a @ w.transpose(0, 2, 1)]
    yield "FusedMatMul", [f(5, 3), f(5, 6)], {"transA": 1}, None
    g = f(12)
    yield "SkipLayerNormalization", [x, y, g, b, f(12)], {"epsilon": 1e-5}, None
    yield "SkipLayerNormalization", [x, y, g], {"epsilon": 1e-5}, [norm(x + y, g, 0, 1e-5)]
    yield "SkipSimplifiedLayerNormalization", [x, y, g], {"epsilon": 1e-5}, [rms(x + y, g, 1e-5)]
    c = [f(1, 4, 5, 6), f(3, 4, 1, 1), f(3)]
    z = f(1, 3, 5, 6)
    kernel = {"kernel_shape": [1, 1]}
    yield "FusedConv", c, {**kernel, "activation": "Relu"}, [np.maximum(conv1(*c), 0)]
    yield "FusedConv", [*c, z], {**kernel, "activation": "Relu"}, [np.maximum(conv1(*c) + z, 0)]
    yield "FusedConv", c, {**kernel, "activation": "LeakyRelu", "activation_params": [0.25]}, [np.where(conv1(*c) > 0, conv1(*c), 0.25 * conv1(*c))]
    yield "FusedConv", c, {**kernel, "activation": "Clip", "activation_params": [-0.5, 0.75]}, [np.clip(conv1(*c), -0.5, 0.75)]
    m = [f(4, 6), f(6, 5), f(5)]
    yield "FusedGemm", m, {"activation": "Tanh"}, [np.tanh(m[0] @ m[1] + m[2])]
    yield "FusedGemm", m, {"activation": "LeakyRelu", "activation_alpha": 0.125}, [np.where(m[0] @ m[1] + m[2] > 0, m[0] @ m[1] + m[2], (m[0] @ m[1] + m[2]) / 8)]
    x, b, y = f(2, 9, 6), f(6), f(2, 9, 6)
    yield "BiasAdd", [x, b, y], {}, [x + b + y]
    q, s, z, plain = nbits(10, 40, 16, 4)
    a = f(3, 40)
    how = {"K": 40, "N": 10, "bits": 4, "block_size": 16}
    yield "MatMulNBits", [a, q, s.ravel(), z.ravel()], how, [a @ plain.T]
    yield "MatMulNBits", [a, q, s.ravel()], how, None
    q, s, z, plain = nbits(10, 32, 16, 8)
    a = f(3, 32)
    yield "MatMulNBits", [a, q, s.ravel(), z.ravel()], {"K": 32, "N": 10, "bits": 8, "block_size": 16}, [a @ plain.T]
    yield from attentions()
    yield from quantised()


def attentions():
    x, w, b = f(2, 5, 8), f(8, 24), f(24)
    q, k, v = (heads(t, 2) for t in np.split(x @ w + b, 3, -1))
    yield "Attention", [x, w, b], {"num_heads": 2}, [attend(q, k, v)]
    yield "Attention", [x, w, b, np.array([5, 3], "i4")], {"num_heads": 2}, [attend(q, k, v, np.where(np.arange(5) < np.array([5, 3])[:, None, None, None], 0, -10000))]
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], "i4")
    yield "Attention", [x, w, b, mask], {"num_heads": 2}, [attend(q, k, v, np.where(mask[:, None, None] > 0, 0, -10000))]
    causal = np.where(np.tril(np.ones((5, 5))) > 0, 0, -np.inf)
    yield "Attention", [x, w, b], {"num_heads": 2, "unidirectional": 1, "scale": 0.3}, [attend(q, k, v, causal, 0.3)]
    q, k, v, b = f(2, 4, 8), f(2, 6, 8), f(2, 6, 8), f(24)
    parts = [heads(t + b[8 * i:8 * i + 8], 2) for i, t in enumerate((q, k, v))]
    yield "MultiHeadAttention", [q, k, v], {"num_heads": 2}, [attend(heads(q, 2), heads(k, 2), heads(v, 2))]
    pad = np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]], "i4")
    yield "MultiHeadAttention", [q, k, v, b, pad], {"num_heads": 2}, [attend(*parts, np.where(pad[:, None, None] > 0, 0, -10000))]
    more = f(1, 2, 4, 6)
    yield "MultiHeadAttention", [q, k, v, b, None, more], {"num_heads": 2}, [attend(*parts, more)]
    words, places, kinds, g, e = f(20, 8), f(10, 8), f(2, 8), f(8), f(8)
    ids, kind, mask = rng.integers(0, 20, (2, 6)).astype("i4"), rng.integers(0, 2, (2, 6)).astype("i4"), np.array([[1] * 6, [1] * 4 + [0] * 2], "i4")
    total = words[ids] + places[:6] + kinds[kind]
    yield "EmbedLayerNormalization", [ids, kind, words, places, kinds, g, e, mask], {"epsilon": 1e-5}, [norm(total, g, e, 1e-5), mask.sum(1).astype("i4")]
    t = f(2, 5, 16)
    angle = np.outer(np.arange(12), 1 / 10000 ** (np.arange(4) / 4)).astype("f4")
    cos, sin = np.cos(angle), np.sin(angle)
    yield "RotaryEmbedding", [t, np.array([3], "i8"), cos, sin], {}, [turned(t, cos, sin, np.arange(3, 8)[None].repeat(2, 0), 2)]
    where = rng.integers(0, 12, (2, 5)).astype("i8")
    yield "RotaryEmbedding", [t, where, cos, sin], {}, [turned(t, cos, sin, where, 2)]


def quantised():
    a, b = u8(3, 7), u8(3, 7)
    q = [a, scale(0.02), zero(120), b, scale(0.05), zero(3), scale(0.06), zero(100)]
    yield "QLinearAdd", q, {}, [byte(number(a, 0.02, 120) + number(b, 0.05, 3), 0.06, 100)]
    yield "QLinearMul", q, {}, [byte(number(a, 0.02, 120) * number(b, 0.05, 3), 0.06, 100)]
    s = i8(4, 9)
    yield "QLinearSigmoid", [s, scale(0.05), zero(2, "i1"), scale(1 / 256), zero(-128, "i1")], {}, [byte(sigmoid(number(s, 0.05, 2)), 1 / 256, -128, "i1")]
    yield "QLinearLeakyRelu", [s, scale(0.05), zero(2, "i1"), scale(0.04), zero(0, "i1")], {"alpha": 0.25}, [byte(np.where(number(s, 0.05, 2) > 0, number(s, 0.05, 2), number(s, 0.05, 2) / 4), 0.04, 0, "i1")]
    yield "QLinearSoftmax", [s, scale(0.1), zero(2, "i1"), scale(1 / 256), zero(-128, "i1")], {"axis": 1, "opset": 13}, [byte(softmax(number(s, 0.1, 2)), 1 / 256, -128, "i1")]
    p = u8(1, 3, 4, 5)
    tail = [scale(0.05), zero(10), scale(0.04), zero(7)]
    yield "QLinearGlobalAveragePool", [p, *tail], {}, [byte(number(p, 0.05, 10).mean((2, 3), keepdims=True), 0.04, 7)]
    yield "QLinearGlobalAveragePool", [p.transpose(0, 2, 3, 1).copy(), *tail], {"channels_last": 1}, [byte(number(p, 0.05, 10).mean((2, 3)).reshape(1, 1, 1, 3), 0.04, 7)]
    yield "QLinearAveragePool", [p, *tail], {"kernel_shape": [2, 5]}, [byte(number(p, 0.05, 10).reshape(1, 3, 4, 5).mean(3, keepdims=True)[:, :, :-1] / 2 + number(p, 0.05, 10).mean(3, keepdims=True)[:, :, 1:] / 2, 0.04, 7)]
    yield "QLinearConcat", [scale(0.06), zero(100), a, scale(0.02), zero(120), b, scale(0.05), zero(3)], {"axis": 1}, [byte(np.concatenate([number(a, 0.02, 120), number(b, 0.05, 3)], 1), 0.06, 100)]
    w, c = i8(5, 7), rng.integers(-1000, 1000, 5).astype("i4")
    sum = (a.astype("i4") - 120) @ w.astype("i4").T + c
    gemm = [a, scale(0.02), zero(120), w, scale(0.03), zero(0, "i1"), c]
    yield "QGemm", gemm, {"transB": 1}, [sum * np.float32(0.02) * np.float32(0.03)]
    yield "QGemm", [*gemm, scale(0.5), zero(128)], {"transB": 1}, [byte(sum * np.float32(0.02) * np.float32(0.03), 0.5, 128)]
    w = i8(7, 5)
    sum = (a.astype("i4") - 120) @ w.astype("i4")
    yield "MatMulIntegerToFloat", [a, w, scale(0.02), scale(0.03), zero(120), None, f(5)], {}, None
    yield "MatMulIntegerToFloat", [a, w, scale(0.02), scale(0.03), zero(120)], {}, [sum * np.float32(0.02) * np.float32(0.03)]
    x = f(3, 7)
    s = np.float32((max(x.max(), 0) - min(x.min(), 0)) / 255)
    z = np.clip(np.rint(-min(x.min(), 0) / s), 0, 255)
    yield "DynamicQuantizeMatMul", [x, w, scale(0.03)], {}, [(byte(x, s, z).astype("i4") - int(z)) @ w.astype("i4") * s * np.float32(0.03)]


def tensor(name, x):
    from kiln.wire import field, number
    dims = b"".join(number(1, d) for d in x.shape)
    return dims + number(2, ob.DTYPES[NAMES[x.dtype.str[1:]]]) + field(8, name.encode()) + field(9, np.ascontiguousarray(x).tobytes())


def model(op, inputs, attrs, nout):
    """The first input is the client's, the others constants."""
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    names = ["" if x is None else f"in{i}" for i, x in enumerate(arrays)]
    first = next(i for i, x in enumerate(arrays) if x.ndim)
    consts = [tensor(n, x) for i, (n, x) in enumerate(zip(names, arrays)) if x is not None and i != first]
    outs = [f"out{i}" for i in range(nout)]
    attrs = {k: v for k, v in attrs.items()}
    g = ob.graph([ob.node(op, names, outs, "com.microsoft", **attrs)], [ob.value(names[first], NAMES[arrays[first].dtype.str[1:]], arrays[first].shape)],
                 [ob.field(1, o.encode()) for o in outs], consts)
    return ob.model(g, (("", 17), ("com.microsoft", 1))), names[first], arrays[first]


service = Service(build)
client = kiln.Client(f"http://127.0.0.1:{service.port}", cache=tempfile.mkdtemp(), timeout=240)


def judge(op, inputs, attrs, want):
    text, name, x = model(op, inputs, attrs, len(want) if want else 1)
    label, theirs = f"{op} {attrs}", None
    if onnxruntime:
        try:
            theirs = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"]).run(None, {name: x})
        except Exception as e:
            print("# onnxruntime does not take", label, str(e)[:200])
    try:
        got = client.compile_onnx(text)(x)
    except kiln.Error as e:
        return check(label, False, e)
    for who, others in (("numpy", want), ("onnxruntime", theirs)):
        for mine, other in zip(got if isinstance(got, (tuple, list)) else [got], others or []):
            mine, other = np.asarray(mine), np.asarray(other)
            far = np.abs(mine.astype("f8") - other.astype("f8")).max() if mine.shape == other.shape else math.inf
            near = 1 if mine.dtype.itemsize == 1 else 2e-5 * max(1, np.abs(other).max()) # bytes may fall on the other side of a tie
            check(f"{label} against {who}", far <= near, (far, mine.dtype, other.dtype))


try:
    for case in cases():
        judge(*case)
finally:
    check("ends on SIGTERM", service.stop() == 0)
sys.exit(check.end())
