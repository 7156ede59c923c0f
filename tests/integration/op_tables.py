"""Requests for the rows of tests/data/op_tables.csv, the operator tables of ROLLER (OSDI'22), FlexTensor (ASPLOS'20), AMOS (ISCA'22) and
TensorIR (ASPLOS'23): table, family, id, shape, source. A family is a function here from a row's shape to requests at reduced size, so a row
of a known family is tested by being there. Whole networks, which these tables list too, are not operators and were left out. Layouts are ONNX's, channels
first, and dtypes f32 (i8 where the family says so), whatever the source measured."""
import csv

def cut(e, limit):
    """At most `limit`, and the same remainder modulo 4: where the full size leaves a tail, so does this one."""
    return e if e <= limit else limit - (limit - e) % 4 if limit >= 8 else limit

def prime(e, limit):
    """The largest prime up to what cut() gives: nothing divides it, every tile has a tail."""
    e = cut(e, limit)
    while e > 2 and any(e % d == 0 for d in range(2, int(e ** 0.5) + 1)): e -= 1
    return e

class Shape:
    def __init__(self, text, size):
        self.values, self.size = dict(x.split("=") for x in text.split(";")), size
    def __call__(self, name, limit): return self.size(int(self.values[name]), limit)
    def has(self, name): return name in self.values
    def list(self, name): return [int(x) for x in self.values[name].split("x")]
    def one(self, name): return int(self.values[name])

def f(*shape, dtype="f32"): return {"dtype": dtype, "shape": list(shape)}
def op(op_name, *inputs, **attrs):
    return {"op": {"name": op_name, "attrs": attrs}, "inputs": [dict(x, name=f"i{k}") for k, x in enumerate(inputs)]}

def window(s):
    """kernel, attributes, and spatial extents of the input: cut, but never smaller than the window needs."""
    kernel, n = s.list("kernel"), len(s.list("kernel"))
    stride, pad, dil = (s.list(k) if s.has(k) else [d] * n for k, d in (("stride", 1), ("pad", 0), ("dil", 1)))
    room = [max(s.size(e, {1: 40, 2: 14, 3: 7}[n]), (k - 1) * d + 1 - 2 * p) for e, k, d, p in zip(s.list("in"), kernel, dil, pad)]
    while s.size is prime and any(prime(e, e) != e for e in room): room = [e if prime(e, e) == e else e + 1 for e in room]
    return kernel, room, dict(strides=stride, pads=pad * 2, dilations=dil)

def channels(s):
    """groups, input and output channels; both a group's own extents and the number of groups are cut."""
    group = s.one("groups") if s.has("groups") else 1
    if group == 1: return 1, s("C", 16), s("K", 20)
    g = s.size(group, 7)
    return g, g * s.size(s.one("C") // group, 4), g * s.size(s.one("K") // group, 6)

def conv(name="Conv", extra=0, dtype="f32"):
    def make(s):
        kernel, room, attrs = window(s)
        g, c, k = channels(s)
        return [op(name, f(s("N", 2), c, *room, dtype=dtype), f(k, c // g, *kernel, dtype=dtype), *[f(k)] * extra, **(dict(group=g) if g > 1 else {}), **attrs)]
    return make

def conv_transpose(s):
    kernel, room, attrs = window(s)
    g, c, k = channels(s)
    room = [max(e, 2 + 2 * p) for e, p in zip(room, s.list("pad"))]
    return [op("ConvTranspose", f(s("N", 2), c, *room), f(c, k // g, *kernel), group=g, **attrs)]

def batch_conv(s):
    kernel, room, attrs = window(s)
    return [op("BatchConv", f(2, s("C", 16), *room), f(2, s("K", 20), s("C", 16), *kernel), **attrs)]

def capsule_conv(s):
    kernel, room, attrs = window(s)
    caps, c, k = s.list("caps"), s("C", 8), s("K", 9)
    if len(caps) == 1: return [op("CapsuleConv", f(s("N", 2), c, *room), f(k, c, *kernel, s.size(*caps, 8)), **attrs)]
    i, j = (s.size(e, 4) for e in caps)
    return [op("CapsuleConv", f(s("N", 2), c, *room, i, j), f(k, c, *kernel, j, i), **attrs)]

def pool(name):
    def make(s):
        kernel, room, attrs = window(s)
        attrs.pop("dilations")
        return [op(name, f(s("N", 2), s("C", 20), *room), kernel_shape=kernel, **attrs)]
    return make

def reduce(name):
    return lambda s: [op(name, f(s("N", 2), s("C", 20), *[s.size(e, 14) for e in s.list("in")]), axes=[0, 2, 3], keepdims=0)]

def scan(s):
    m, n, k = s("M", 16), s("N", 40), s("K", 24)
    return [op("CumSum", f(m, s("K", 150)), axis=1), # AMOS lets N differ from K: a prefix beyond the end is the whole sum
            {"expr": f"y[M,N] +=! select(K <= N, x[M,K], 0.0) where N in {n}", "inputs": {"x": f"f32[{m},{k}]"}}]

def block_circulant(s):
    b = s.size(s.one("block"), 16)
    rows, cols = s.one("M") // s.one("block"), s.one("K")
    rows, cols = s.size(rows, 3), s.size(cols, 40)
    return [op("BlockCirculantMatMul", f(5, cols), f(rows, -(-cols // b), b)), op("BlockCirculantProjection", f(rows * b + 1, cols), block=b)]

def shift(s):
    kernel, room, attrs = window(s)
    c = s("C", 31)
    attrs = dict(kernel_shape=kernel, dilations=attrs["dilations"])
    return [op("Shift", f(s("N", 2), c, *room), **attrs), op("Shift", f(s("N", 2), c, *room), f(c, dtype="i32"), **attrs)]

def grouped_linear(s):
    g = s("groups", 8)
    i, o = (s.size(s.one(k) // s.one("groups"), 5) * g for k in "IO")
    return [op("GroupedLinear", f(3, i), f(o, i // g), group=g)]

def reduce_sum(s):
    return [op("ReduceSum", f(*[s.size(e, 20) for e in s.list("in")]), axes=s.list("axes"), keepdims=0)]

FAMILIES = {
    "C1D": conv(), "C2D": conv(), "C3D": conv(), "GRP": conv(), "DIL": conv(), "DEP": conv(), "WIN": conv(), "C2D+bias": conv(extra=1),
    "C2D+bias+relu": conv("FusedConv", 1), "CBR": conv("FusedConv", 3), "C2D-int8": conv("ConvInteger", dtype="i8"),
    "T1D": conv_transpose, "T2D": conv_transpose, "T3D": conv_transpose, "BCV": batch_conv, "CAP": capsule_conv,
    "AVG": pool("AveragePool"), "MAX": pool("MaxPool"), "MEN": reduce("ReduceMean"), "VAR": reduce("ReduceVariance"), "RED": reduce_sum,
    "NRM": lambda s: [op("ReduceL2", f(s("B", 2), s("M", 20), s("N", 24)), axes=[1, 2], keepdims=0)],
    "SFM": lambda s: [op("Softmax", f(s("M", 20), s("N", 40)))], "ELW": lambda s: [op("Relu", f(s("flat", 1000)))],
    "GMV": lambda s: [op("MatMul", f(s("M", 40), s("K", 40)), f(s("K", 40)))],
    "GMM": lambda s: [op("MatMul", f(s("M", 40), s("K", 40)), f(s("K", 40), s("N", 40)))],
    "BMM": lambda s: [op("MatMul", f(s("B", 3), s("M", 40), s("K", 40)), f(s("B", 3), s("K", 40), s("N", 40)))],
    "GMM-int8": lambda s: [op("MatMulInteger", f(s("M", 40), s("K", 40), dtype="i8"), f(s("K", 40), s("N", 40), dtype="i8"))],
    "TBG": lambda s: [op("TransposedBatchMatMul", *[f(s("B", 2), s("seq", 24), s("head", 3), s("dim", 20))] * 2)],
    "BIL": lambda s: [op("Bilinear", f(s("N", 7), s("K1", 16)), f(s("N", 7), s("K2", 20)), f(s("M", 9), s("K1", 16), s("K2", 20)))],
    "BCM": block_circulant, "SHO": shift, "GFC": grouped_linear, "SCN": scan,
}

def rows():
    with open("tests/data/op_tables.csv") as t: return list(csv.DictReader(t))

def requests(row, size):
    """The row's requests; KeyError where no function is known for its family."""
    return FAMILIES[row["family"]](Shape(row["shape"], size))
