"""ATen operators on elements, numbers and axes, in ONNX's words; see fx.py."""
import math

import torch

from .fx import TABLE, Refused, _axes, _common, _slice, _unary, aten, fake, row

for _t, _n in ((aten.sign, "Sign"), (aten.round, "Round"), (aten.atan, "Atan"), (aten.asin, "Asin"), (aten.acos, "Acos"), (aten.sinh, "Sinh"), (aten.cosh, "Cosh"),
               (aten.tan, "Tan"), (aten.asinh, "Asinh"), (aten.acosh, "Acosh"), (aten.atanh, "Atanh"), (aten.softplus, "Softplus"), (aten.isnan, "IsNaN"),
               (aten.isinf, "IsInf")):
    _unary(_t.default, _n)
TABLE[aten.isnan.default] = lambda e, node, x: e.op("IsNaN", e.get(x))
TABLE[aten.isinf.default] = lambda e, node, x: e.op("IsInf", e.get(x))


@row(aten.softplus.default)
def softplus(e, node, x, beta=1, threshold=20):
    if beta != 1 or fake(x).dtype not in (torch.float32, torch.float16, torch.bfloat16) or threshold < 17:
        raise Refused("beta, or a threshold that shows")
    return e.op("Softplus", e.get(x))


@row(aten.trunc.default)
def trunc(e, node, x):
    y, zero = e.get(x), e.scalar(0.0, fake(x).dtype)
    return e.op("Where", e.op("Less", y, zero), e.op("Ceil", y), e.op("Floor", y))


@row(aten.ne.Tensor, aten.ne.Scalar)
def unequal(e, node, x, y):
    t = _common(node, x, y)
    return e.op("Not", e.op("Equal", e.get(x, t), e.get(y, t)))


@row(aten.eq.Scalar)
def equal(e, node, x, y):
    if isinstance(y, float) and math.isinf(y):
        z = e.get(x)
        sign = e.op("Less" if y < 0 else "Greater", z, e.scalar(0.0, fake(x).dtype))
        return e.op("And", e.op("IsInf", z), sign)
    t = _common(node, x, y)
    return e.op("Equal", e.get(x, t), e.get(y, t))


def _logical(target, name, whole):
    """Of bools a row of logic, of integers the one bit by bit."""
    def emit(e, node, x, y):
        t = fake(node).dtype
        return e.op(name if t == torch.bool else whole, e.get(x, t), e.get(y, t))
    for o in ("Tensor", "Scalar"):
        TABLE[getattr(target, o)] = emit


_logical(aten.bitwise_and, "And", "BitwiseAnd")
_logical(aten.bitwise_or, "Or", "BitwiseOr")
_logical(aten.bitwise_xor, "Xor", "BitwiseXor")
TABLE[aten.logical_xor.default] = lambda e, node, x, y: e.op("Xor", e.get(x, torch.bool), e.get(y, torch.bool))


def _shift(target, direction, *overloads):
    def emit(e, node, x, y):
        t = fake(node).dtype
        return e.op("BitShift", e.get(x, t), e.get(y, t), direction=direction)
    for o in overloads:
        TABLE[getattr(target, o)] = emit


_shift(aten.__lshift__, "LEFT", "Scalar", "Tensor")
_shift(aten.__rshift__, "RIGHT", "Scalar", "Tensor")
_shift(aten.bitwise_left_shift, "LEFT", "Tensor", "Tensor_Scalar")
_shift(aten.bitwise_right_shift, "RIGHT", "Tensor", "Tensor_Scalar")


@row(aten.bitwise_not.default)
def bitwise_not(e, node, x):
    return e.op("Not" if fake(x).dtype == torch.bool else "BitwiseNot", e.get(x))


@row(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(e, node, x, y):
    t = fake(node).dtype
    if not t.is_floating_point and not (isinstance(y, int) and y):
        raise Refused("integers, where a zero among the divisors is an error")
    return e.op("Mod", e.get(x, t), e.get(y, t), fmod=1)


@row(aten.remainder.Tensor, aten.remainder.Scalar)
def remainder(e, node, x, y):
    t = fake(node).dtype
    if not t.is_floating_point and not (isinstance(y, int) and y):
        raise Refused("integers, where a zero among the divisors is an error")
    return e.op("Mod", e.get(x, t), e.get(y, t))


@row(aten.div.Tensor_mode, aten.div.Scalar_mode)
def divided(e, node, x, y, rounding_mode=None):
    t = fake(node).dtype
    if not t.is_floating_point:
        if not (isinstance(y, int) and y):
            raise Refused("integers, where a zero among the divisors is an error")
        a, b = e.get(x, t), e.get(y, t)  # Div rounds to zero
        return e.op("Div", e.op("Sub", a, e.op("Mod", a, b)) if rounding_mode == "floor" else a, b)
    q = e.op("Div", e.get(x, t), e.get(y, t))
    if rounding_mode == "trunc":
        return e.op("Where", e.op("Less", q, e.scalar(0.0, t)), e.op("Ceil", q), e.op("Floor", q))
    return q if rounding_mode is None else e.op("Floor", q)


@row(aten.leaky_relu.default)
def leaky_relu(e, node, x, slope=0.01):
    return e.op("LeakyRelu", e.get(x), alpha=float(slope))


@row(aten.hardtanh.default)
def hardtanh(e, node, x, low=-1.0, high=1.0):
    t = fake(x).dtype
    return e.op("Min", e.op("Max", e.get(x), e.get(low, t)), e.get(high, t))


@row(aten.clamp.Tensor)
def clamp_by(e, node, x, low=None, high=None):
    t = fake(node).dtype
    y = e.get(x, t)
    y = y if low is None else e.op("Max", y, e.get(low, t))
    return y if high is None else e.op("Min", y, e.get(high, t))


@row(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power(e, node, x, y):
    t = fake(node).dtype
    if not t.is_floating_point:
        raise Refused("powers of integers")
    return e.op("Pow", e.get(x, t), e.get(y, t))


def _accurate(e, t, x):
    """Where small numbers matter (log1p, expm1) only f32 and f64 are said in this way."""
    if t not in (torch.float32, torch.float64):
        raise Refused("a half float")
    return e.get(x, t), e.scalar(1.0, t)


@row(aten.log1p.default)
def log1p(e, node, x):
    """Kahan: the error of 1 + x is divided out; u - 1 is exact."""
    y, one = _accurate(e, fake(node).dtype, x)
    u = e.op("Add", y, one)
    d = e.op("Sub", u, one)
    whole = e.op("Or", e.op("Equal", u, one), e.op("IsInf", u))
    ratio = e.op("Div", y, e.op("Where", whole, one, d))
    return e.op("Where", e.op("Equal", u, one), y, e.op("Mul", e.op("Log", u), e.op("Where", whole, one, ratio)))


@row(aten.expm1.default)
def expm1(e, node, x):
    y, one = _accurate(e, fake(node).dtype, x)
    u = e.op("Exp", y)
    d = e.op("Sub", u, one)
    far = e.op("Greater", e.op("Abs", y), e.scalar(0.5, fake(node).dtype))
    same = e.op("Equal", u, one)
    near = e.op("Mul", d, e.op("Div", y, e.op("Log", e.op("Where", e.op("Or", same, far), e.scalar(2.0, fake(node).dtype), u))))
    return e.op("Where", far, d, e.op("Where", same, y, near))


@row(aten.log2.default)
def log2(e, node, x):
    return e.op("Mul", e.op("Log", e.get(x, fake(node).dtype)), e.scalar(1 / math.log(2), fake(node).dtype))


@row(aten.log10.default)
def log10(e, node, x):
    return e.op("Mul", e.op("Log", e.get(x, fake(node).dtype)), e.scalar(1 / math.log(10), fake(node).dtype))


@row(aten.exp2.default)
def exp2(e, node, x):
    return e.op("Pow", e.scalar(2.0, fake(node).dtype), e.get(x, fake(node).dtype))


@row(aten.hypot.default)
def hypot(e, node, x, y):
    """Scaled by the larger one, so that squares neither vanish nor overflow."""
    t = fake(node).dtype
    a, b = e.op("Abs", e.get(x, t)), e.op("Abs", e.get(y, t))
    m, n = e.op("Max", a, b), e.op("Min", a, b)
    inside = e.op("And", e.op("Greater", m, e.scalar(0.0, t)), e.op("Not", e.op("IsInf", m)))
    r = e.op("Div", n, e.op("Where", inside, m, e.scalar(1.0, t)))
    return e.op("Where", inside, e.op("Mul", m, e.op("Sqrt", e.op("Add", e.op("Mul", r, r), e.scalar(1.0, t)))), m)


@row(aten.any.default, aten.any.dim, aten.any.dims)
def any_of(e, node, x, dims=None, keepdim=False):
    return _logic(e, node, x, dims, keepdim, "ReduceMax")


@row(aten.all.default, aten.all.dim, aten.all.dims)
def all_of(e, node, x, dims=None, keepdim=False):
    return _logic(e, node, x, dims, keepdim, "ReduceMin")


def _logic(e, node, x, dims, keepdim, name):
    if fake(node).dtype != torch.bool or fake(x).ndim == 0:
        raise Refused("no bools, or a scalar")
    dims = dims if dims is None or isinstance(dims, (list, tuple)) else [dims]
    y = e.op(name, e.cast(e.get(x, torch.bool), torch.int32), e.numbers(_axes(x, dims)), keepdims=int(keepdim))
    return e.cast(y, torch.bool)


@row(aten.prod.default, aten.prod.dim_int)
def prod(e, node, x, dim=None, keepdim=False, **_):
    t = fake(node).dtype
    if fake(x).ndim == 0:
        return e.op("Identity", e.get(x, t))
    return e.op("ReduceProd", e.get(x, t), e.numbers(_axes(x, None if dim is None else [dim])), keepdims=int(keepdim))


@row(aten.var.correction)
def var(e, node, x, dims=None, correction=1, keepdim=False):
    axes = _axes(x, dims)
    n = math.prod(fake(x).shape[d] for d in axes)
    correction = 1 if correction is None else correction
    if n <= correction or fake(x).ndim == 0:
        raise Refused("too few elements for a variance")
    c = e.op("Sub", e.get(x), e.op("ReduceMean", e.get(x), e.numbers(axes), keepdims=1))
    total = e.op("ReduceSum", e.op("Mul", c, c), e.numbers(axes), keepdims=int(keepdim))
    return e.op("Mul", total, e.scalar(1.0 / (n - correction), fake(x).dtype))


@row(aten.argmax.default, aten.argmin.default)
def arg(e, node, x, dim=None, keepdim=False):
    name = "ArgMax" if node.target is aten.argmax.default else "ArgMin"
    if fake(x).ndim == 0 or (dim is None and keepdim):
        raise Refused("a scalar")
    if dim is None:
        return e.op(name, e.reshape(e.get(x), [fake(x).numel()]), axis=0, keepdims=0)
    return e.op(name, e.get(x), axis=dim % fake(x).ndim, keepdims=int(keepdim))


@row(aten.max.dim, aten.min.dim)
def extreme(e, node, x, dim, keepdim=False):
    which = ("ReduceMax", "ArgMax") if node.target is aten.max.dim else ("ReduceMin", "ArgMin")
    if fake(x).ndim == 0:
        raise Refused("a scalar")
    dim, bools = dim % fake(x).ndim, fake(x).dtype == torch.bool
    y = e.get(x, torch.int32) if bools else e.get(x)
    top = e.op(which[0], y, e.numbers([dim]), keepdims=int(keepdim))
    return (e.cast(top, torch.bool) if bools else top, e.op(which[1], y, axis=dim, keepdims=int(keepdim)))


@row(aten.max.default, aten.min.default)
def extreme_of_all(e, node, x):
    if fake(x).ndim == 0 or fake(x).dtype == torch.bool:
        raise Refused("a scalar or bools")
    return e.op("ReduceMax" if node.target is aten.max.default else "ReduceMin", e.get(x), e.numbers(range(fake(x).ndim)), keepdims=0)


@row(aten.cumsum.default, aten.cumprod.default)
def prefix(e, node, x, dim, **_):
    t = fake(node).dtype
    if fake(x).ndim == 0:
        return e.op("Identity", e.get(x, t))
    return e.op("CumSum" if node.target is aten.cumsum.default else "CumProd", e.get(x, t), e.constant("i64", [], values=[dim % fake(x).ndim]))


@row(aten.topk.default)
def topk(e, node, x, k, dim=-1, largest=True, sorted=True):
    return _sorted(e, x, k, dim, largest)


@row(aten.sort.default, aten.sort.stable)
def sort(e, node, x, dim=-1, descending=False, stable=None):
    if node.target is aten.sort.stable:
        x, dim, descending = node.args[0], node.kwargs.get("dim", -1), node.kwargs.get("descending", False)
    if fake(x).ndim and fake(x).shape[dim] > 256:
        raise Refused("more than 256 elements: every one is compared with every other")
    return _sorted(e, x, fake(x).shape[dim] if fake(x).ndim else 1, dim, descending)


def _sorted(e, x, k, dim, largest):
    if fake(x).ndim == 0 or fake(x).dtype == torch.bool or not isinstance(k, int) or k < 1:
        raise Refused("a scalar or bools")
    outs = e.fresh(), e.fresh()
    e.nodes.append({"op": "TopK", "inputs": [e.get(x), e.numbers([k])], "outputs": list(outs), "attrs": {"axis": dim % fake(x).ndim, "largest": int(largest), "sorted": 1}})
    return outs


@row(aten.arange.start_step, torch.ops.prims.iota.default)
def counted(e, node, *args, **how):
    v = fake(node)
    start, step = (how.get("start", 0), how.get("step", 1)) if node.target is torch.ops.prims.iota.default else (args[0], args[2] if len(args) > 2 else 1)
    if v.numel() > 65536:
        raise Refused("more than 65536 numbers")
    name = e.constant("f32" if v.dtype.is_floating_point else "i64", [v.numel()], values=[start + i * step for i in range(v.numel())])
    return e.cast(name, v.dtype) if v.dtype not in (torch.float32, torch.int64) else name


@row(aten.full_like.default)
def full_like(e, node, x, value, **_):
    return e.expanded(e.scalar(value, fake(node).dtype), fake(node).shape)


@row(aten.repeat.default)
def repeat(e, node, x, times):
    shape = [1] * (len(times) - fake(x).ndim) + list(fake(x).shape)
    return e.op("Tile", e.reshape(e.get(x), shape), e.numbers(times))


@row(aten.flip.default)
def flip(e, node, x, dims):
    n = len(dims)
    return e.op("Slice", e.get(x), e.numbers([-1] * n), e.numbers([-2 ** 40] * n), e.numbers([d % fake(x).ndim for d in dims]), e.numbers([-1] * n)) if n else e.op("Identity", e.get(x))


@row(aten.constant_pad_nd.default)
def constant_pad(e, node, x, pads, value=0):
    n = fake(x).ndim
    begin, end = [0] * n, [0] * n
    for i in range(len(pads) // 2):
        begin[n - 1 - i], end[n - 1 - i] = pads[2 * i], pads[2 * i + 1]
    y = e.get(x)
    if any(p < 0 for p in begin + end):  # cut first
        y = e.op("Slice", y, e.numbers([max(0, -p) for p in begin]), e.numbers([s - max(0, -p) for s, p in zip(fake(x).shape, end)]), e.numbers(range(n)))
    if not any(p > 0 for p in begin + end):
        return e.op("Identity", y) if y == e.get(x) else y
    return e.op("Pad", y, e.numbers([max(0, p) for p in begin + end]), e.scalar(value, fake(x).dtype))


@row(aten.lift_fresh_copy.default, aten.copy.default)
def copy(e, node, x, y=None, *_):
    if y is None:
        return e.op("Identity", e.get(x))
    t = fake(node)
    z = e.get(y, t.dtype) if isinstance(y, torch.fx.Node) else e.scalar(y, t.dtype)
    return e.expanded(z, t.shape) if not isinstance(y, torch.fx.Node) or fake(y).shape != t.shape else e.op("Identity", z)


@row(aten.slice_scatter.default)
def slice_scatter(e, node, x, y, dim=0, start=None, end=None, step=1):
    """A contiguous range is what lies before it, the new part, what lies behind; with a step its elements are put one by one."""
    n, dim = fake(x).shape[dim], dim % fake(x).ndim
    start = 0 if start is None else max(0, start + n) if start < 0 else min(start, n)
    end = n if end is None else max(0, end + n) if end < 0 else min(end, n)
    part = e.get(y, fake(x).dtype)
    if step == 1:
        sides = ([_slice(e, e.get(x), dim, 0, start)] if start else []) + [part] + ([_slice(e, e.get(x), dim, end, n)] if end < n else [])
        return e.op("Concat", *sides, axis=dim) if len(sides) > 1 else e.op("Identity", part)
    shape = list(fake(y).shape)
    at = e.reshape(e.numbers(range(start, end, step)), [shape[i] if i == dim else 1 for i in range(len(shape))])
    return e.op("ScatterElements", e.get(x), e.op("Expand", at, e.numbers(shape)), part, axis=dim)


@row(aten.select_scatter.default)
def select_scatter(e, node, x, y, dim, index):
    n, dim = fake(x).shape[dim], dim % fake(x).ndim
    part, index = e.reshape(e.get(y, fake(x).dtype), [1 if i == dim else s for i, s in enumerate(fake(x).shape)]), index % n
    sides = ([_slice(e, e.get(x), dim, 0, index)] if index else []) + [part] + ([_slice(e, e.get(x), dim, index + 1, n)] if index + 1 < n else [])
    return e.op("Concat", *sides, axis=dim) if len(sides) > 1 else e.op("Identity", part)


@row(aten.as_strided.default)
def as_strided(e, node, x, shape, strides, offset=None):
    v = fake(node)
    if offset or not fake(x).is_contiguous() or not v.is_contiguous() or v.numel() != fake(x).numel():
        raise Refused("a view that is none of the whole tensor in its order")
    return e.reshape(e.get(x), v.shape)
