"""FX graphs of ATen operators as Kiln's graphs: one function an operator, in ONNX's words. Shapes and dtypes come from the fake tensors."""
import operator

import torch

aten = torch.ops.aten
# Without the floats of 8 bits: PyTorch casts to infinity or NaN what Kiln makes the largest value.
DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32",
          torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool"}


class Refused(Exception):
    """This node is left to PyTorch."""


def fake(node):
    return node.meta["val"]


def static(value):
    """Whether a node's value is a tensor, or a tuple of tensors, of known shape in main memory."""
    if isinstance(value, (tuple, list)):
        return all(v is None or static(v) for v in value)
    return (isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dtype in DTYPES and value.layout == torch.strided
            and all(isinstance(n, int) and n > 0 for n in value.shape))


class Emitter:
    """Writes nodes; a value is a name."""

    def __init__(self):
        self.inputs, self.nodes, self.constants, self.names, self.values = [], [], [], 0, {}

    def fresh(self):
        self.names += 1
        return f"t{self.names}"

    def op(self, name, *inputs, **attrs):
        out = self.fresh()
        node = {"op": name, "inputs": list(inputs), "outputs": [out]}
        if attrs:
            node["attrs"] = attrs
        self.nodes.append(node)
        return out

    def constant(self, dtype, shape, **content):
        name = self.fresh()
        self.constants.append({"name": name, "dtype": dtype, "shape": list(shape), **content})
        return name

    def scalar(self, x, dtype):
        """JSON has no numbers that are not finite: those are computed, and the compiler folds them."""
        if isinstance(x, float) and (x != x or x in (float("inf"), float("-inf"))):
            zero = self.constant(DTYPES[dtype], [], fill=0)
            top = zero if x != x else self.constant(DTYPES[dtype], [], fill=1 if x > 0 else -1)
            return self.op("Div", top, zero)
        return self.constant(DTYPES[dtype], [], fill=x)

    def expanded(self, scalar, shape):
        """A scalar, as often as a shape has elements."""
        return self.op("Expand", scalar, self.numbers(shape)) if len(shape) else self.op("Identity", scalar)

    def numbers(self, values):
        return self.constant("i64", [len(values)], values=[int(v) for v in values])

    def get(self, x, dtype=None):
        """The value of an argument; numbers become constants of `dtype`, tensors are cast to it."""
        if isinstance(x, torch.fx.Node):
            name = self.values[x]
            return self.cast(name, dtype) if dtype is not None and fake(x).dtype != dtype else name
        if isinstance(x, (int, float, bool)):
            return self.scalar(x, dtype)
        raise Refused(f"an argument {x!r}")

    def cast(self, name, dtype):
        return self.op("Cast", name, to={"f32": 1, "u8": 2, "i8": 3, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11, "bf16": 16}[DTYPES[dtype]])

    def reshape(self, name, shape):
        return self.op("Reshape", name, self.numbers(shape))


TABLE = {}


def row(*targets):
    def add(f):
        for t in targets:
            TABLE[t] = f
        return f
    return add


def _common(node, *args):
    """The dtype in which an element-wise operator computes."""
    out = fake(node).dtype
    if out != torch.bool:
        return out
    dtype = None
    for a in args:
        if isinstance(a, torch.fx.Node):
            dtype = fake(a).dtype if dtype is None else torch.promote_types(dtype, fake(a).dtype)
    for a in args:
        if isinstance(a, float) and not dtype.is_floating_point:
            dtype = torch.float32
    return dtype


_OF_BOOLS = {"Mul": "And", "Min": "And", "Max": "Or", "Add": "Or"}


def _binary(target, name, *overloads):
    def emit(e, node, x, y, *rest, alpha=1, rounding_mode=None):
        if alpha != 1 or rest or rounding_mode:
            raise Refused("alpha or rounding")
        t = _common(node, x, y)
        if fake(node).dtype == torch.bool and name in _OF_BOOLS:
            return e.op(_OF_BOOLS[name], e.get(x, t), e.get(y, t))
        return e.op(name, e.get(x, t), e.get(y, t))
    for o in overloads:
        TABLE[getattr(target, o)] = emit


for _t, _n, _o in ((aten.add, "Add", ("Tensor", "Scalar")), (aten.sub, "Sub", ("Tensor", "Scalar")), (aten.mul, "Mul", ("Tensor", "Scalar")),
                   (aten.div, "Div", ("Tensor", "Scalar")), (aten.maximum, "Max", ("default",)), (aten.minimum, "Min", ("default",)),
                   (aten.le, "LessOrEqual", ("Tensor", "Scalar")), (aten.lt, "Less", ("Tensor", "Scalar")), (aten.ge, "GreaterOrEqual", ("Tensor", "Scalar")),
                   (aten.gt, "Greater", ("Tensor", "Scalar")), (aten.eq, "Equal", ("Tensor", "Scalar")), (aten.logical_and, "And", ("default",)),
                   (aten.logical_or, "Or", ("default",))):
    _binary(_t, _n, *_o)


def _unary(target, name):
    TABLE[target] = lambda e, node, x: e.op(name, e.get(x, fake(node).dtype))


for _t, _n in ((aten.neg, "Neg"), (aten.exp, "Exp"), (aten.log, "Log"), (aten.sqrt, "Sqrt"), (aten.reciprocal, "Reciprocal"), (aten.abs, "Abs"),
               (aten.tanh, "Tanh"), (aten.sigmoid, "Sigmoid"), (aten.relu, "Relu"), (aten.erf, "Erf"), (aten.sin, "Sin"), (aten.cos, "Cos"),
               (aten.floor, "Floor"), (aten.ceil, "Ceil"), (aten.logical_not, "Not")):
    _unary(_t.default, _n)


@row(aten.rsqrt.default)
def rsqrt(e, node, x):
    return e.op("Reciprocal", e.op("Sqrt", e.get(x, fake(node).dtype)))


@row(aten.silu.default)
def silu(e, node, x):
    return e.op("Mul", e.get(x), e.op("Sigmoid", e.get(x)))


@row(aten.gelu.default)
def gelu(e, node, x, approximate="none"):
    return e.op("Gelu", e.get(x), approximate=approximate)


@row(aten.pow.Tensor_Scalar)
def power(e, node, x, y):
    t = fake(node).dtype
    return e.op("Mul", e.get(x, t), e.get(x, t)) if y == 2 else e.op("Pow", e.get(x, t), e.get(y, t))


@row(aten.clamp.default)
def clamp(e, node, x, low=None, high=None):
    t, y = fake(node).dtype, e.get(x)
    y = y if low is None else e.op("Max", y, e.get(low, t))
    return y if high is None else e.op("Min", y, e.get(high, t))


@row(aten.where.self)
def where(e, node, c, x, y):
    t = fake(node).dtype
    return e.op("Where", e.get(c, torch.bool), e.get(x, t), e.get(y, t))


@row(aten.scalar_tensor.default)
def scalar_tensor(e, node, x, **_):
    return e.scalar(x, fake(node).dtype)


@row(aten.full.default)
def full(e, node, shape, x, **_):
    return e.constant(DTYPES[fake(node).dtype], shape, fill=x)


@row(aten._to_copy.default)
def to_copy(e, node, x, **_):
    return e.get(x, fake(node).dtype) if fake(x).dtype != fake(node).dtype else e.op("Identity", e.get(x))


@row(aten.clone.default, aten.alias.default, aten.detach.default)
def identity(e, node, x, **_):
    return e.op("Identity", e.get(x))


@row(aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims,
     aten.squeeze.default)
def view(e, node, x, *_):
    return e.reshape(e.get(x), fake(node).shape)


@row(aten.permute.default)
def permute(e, node, x, dims):
    n = len(dims)
    return e.op("Transpose", e.get(x), perm=[d % n for d in dims])


@row(aten.t.default)
def t(e, node, x):
    return e.op("Transpose", e.get(x), perm=[1, 0]) if fake(x).ndim == 2 else e.op("Identity", e.get(x))


@row(aten.transpose.int)
def transpose(e, node, x, a, b):
    perm = list(range(fake(x).ndim))
    perm[a], perm[b] = perm[b], perm[a]
    return e.op("Transpose", e.get(x), perm=perm)


@row(aten.expand.default)
def expand(e, node, x, shape, **_):
    if tuple(fake(x).shape) == tuple(fake(node).shape):
        return e.op("Identity", e.get(x))
    return e.op("Expand", e.get(x), e.numbers(fake(node).shape))


@row(aten.cat.default)
def cat(e, node, xs, dim=0):
    return e.op("Concat", *[e.get(x, fake(node).dtype) for x in xs], axis=dim % fake(node).ndim)


def _slice(e, x, dim, start, end):
    return e.op("Slice", x, e.numbers([start]), e.numbers([end]), e.numbers([dim]))


@row(aten.split_with_sizes.default)
def split_with_sizes(e, node, x, sizes, dim=0):
    at, outs = 0, []
    for n in sizes:
        outs.append(_slice(e, e.get(x), dim % fake(x).ndim, at, at + n))
        at += n
    return tuple(outs)


@row(aten.split.Tensor)
def split(e, node, x, size, dim=0):
    total = fake(x).shape[dim]
    return split_with_sizes(e, node, x, [min(size, total - at) for at in range(0, total, size)], dim)


@row(aten.slice.Tensor)
def slice_tensor(e, node, x, dim=0, start=None, end=None, step=1):
    n = fake(x).shape[dim]
    start = 0 if start is None else start + n if start < 0 else start
    end = n if end is None else end + n if end < 0 else min(end, n)
    if step != 1:
        return e.op("Slice", e.get(x), e.numbers([start]), e.numbers([end]), e.numbers([dim % fake(x).ndim]), e.numbers([step]))
    return _slice(e, e.get(x), dim % fake(x).ndim, start, end)


@row(aten.select.int)
def select(e, node, x, dim, index):
    n, dim = fake(x).shape[dim], dim % fake(x).ndim
    return e.reshape(_slice(e, e.get(x), dim, index % n, index % n + 1), fake(node).shape)


@row(aten.mm.default, aten.bmm.default)
def matmul(e, node, x, y):
    return e.op("MatMul", e.get(x), e.get(y))


@row(aten.addmm.default)
def addmm(e, node, b, x, y, beta=1, alpha=1):
    if beta != 1 or alpha != 1:
        raise Refused("factors")
    return e.op("Add", e.op("MatMul", e.get(x), e.get(y)), e.get(b))


@row(aten.embedding.default)
def embedding(e, node, table, index, *_):
    return e.op("Gather", e.get(table), e.get(index), axis=0)


def _each(v, n):
    return list(v) * n if len(v) == 1 else list(v)


@row(aten.convolution.default)
def convolution(e, node, x, w, b, stride, padding, dilation, transposed, output_padding, groups):
    n = fake(x).ndim - 2
    if not 1 <= n <= 3:
        raise Refused("a convolution over that many dimensions")
    inputs = [e.get(x), e.get(w)] + ([e.get(b)] if b is not None else [])
    how = dict(strides=_each(stride, n), pads=_each(padding, n) * 2, dilations=_each(dilation, n), group=groups)
    if transposed:
        return e.op("ConvTranspose", *inputs, output_padding=_each(output_padding, n), **how)
    return e.op("Conv", *inputs, **how)


def _gradient_by_input(e, g, x, w, stride, padding, dilation, groups):
    """The transposed convolution; what the forward one left over at the end is output padding."""
    n = fake(x).ndim - 2
    rest = [fake(x).shape[2 + i] - ((fake(g).shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (fake(w).shape[2 + i] - 1) + 1) for i in range(n)]
    return e.op("ConvTranspose", e.get(g), e.get(w), strides=stride, pads=padding * 2, dilations=dilation, group=groups, output_padding=rest)


def _gradient_by_weight(e, g, x, w, stride, padding, dilation, groups):
    """A convolution of the inputs by the gradient with batch and channels exchanged, strides and dilations too:
    dw[o,c,k] = sum over n and y of x[n, c, y*stride + k*dilation - pad] * g[n,o,y]."""
    n, batch, space = fake(x).ndim - 2, fake(x).shape[0], list(fake(x).shape[2:])
    channels, kernel, out = fake(w).shape[1], list(fake(w).shape[2:]), list(fake(g).shape[2:])
    turned = e.op("Transpose", e.reshape(e.get(x), [batch, groups, channels] + space), perm=[2, 1, 0] + [3 + i for i in range(n)])
    end = [max(0, dilation[i] * (kernel[i] - 1) + stride[i] * (out[i] - 1) + 1 - space[i] - padding[i]) for i in range(n)]
    dw = e.op("Conv", e.reshape(turned, [channels, groups * batch] + space), e.op("Transpose", e.get(g), perm=[1, 0] + [2 + i for i in range(n)]),
              strides=dilation, dilations=stride, pads=padding + end, group=groups)
    spatial = list(range(2, 2 + n))
    dw = e.op("Slice", dw, e.numbers([0] * n), e.numbers(kernel), e.numbers(spatial))
    return e.op("Transpose", dw, perm=[1, 0] + spatial)


@row(aten.convolution_backward.default)
def convolution_backward(e, node, g, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask):
    n = fake(x).ndim - 2
    if not 1 <= n <= 3:
        raise Refused("a convolution over that many dimensions")
    how = (_each(stride, n), _each(padding, n), _each(dilation, n), groups)
    if transposed:  # it is what the gradient of a convolution by its input is: the other two change places
        dx = e.op("Conv", e.get(g), e.get(w), strides=how[0], pads=how[1] * 2, dilations=how[2], group=groups) if mask[0] else None
        dw = _gradient_by_weight(e, x, g, w, *how) if mask[1] else None
    else:
        dx = _gradient_by_input(e, g, x, w, *how) if mask[0] else None
        dw = _gradient_by_weight(e, g, x, w, *how) if mask[1] else None
    return (dx, dw, e.op("ReduceSum", e.get(g), e.numbers([0] + list(range(2, 2 + n))), keepdims=0) if mask[2] else None)


def _only(node, *used):
    for user in node.users:
        if user.target is not operator.getitem or user.args[1] not in used:
            raise Refused("an output that Kiln does not give")


def _pair(v, default):
    v = list(v) if v else list(default)
    return v * 2 if len(v) == 1 else v


def _axes(x, dims):
    return sorted(d % fake(x).ndim for d in dims) if dims else list(range(fake(x).ndim))


def _reduction(target, name):
    def emit(e, node, x, dims=None, keepdim=False, **_):
        if fake(x).ndim == 0:
            return e.op("Identity", e.get(x, fake(node).dtype))
        return e.op(name, e.get(x, fake(node).dtype), e.numbers(_axes(x, dims if isinstance(dims, (list, tuple)) else None if dims is None else [dims])),
                    keepdims=int(keepdim))
    TABLE[target] = emit


for _t, _n in ((aten.mean.dim, "ReduceMean"), (aten.mean.default, "ReduceMean"), (aten.sum.dim_IntList, "ReduceSum"), (aten.sum.default, "ReduceSum"),
               (aten.amax.default, "ReduceMax"), (aten.amin.default, "ReduceMin")):
    _reduction(_t, _n)


@row(aten.var_mean.correction)
def var_mean(e, node, x, dims=None, correction=1, keepdim=False):
    axes, n = _axes(x, dims), 1
    for d in axes:
        n *= fake(x).shape[d]
    if n <= correction:
        raise Refused("too few elements for a variance")
    mean = e.op("ReduceMean", e.get(x), e.numbers(axes), keepdims=1)
    c = e.op("Sub", e.get(x), mean)
    total = e.op("ReduceSum", e.op("Mul", c, c), e.numbers(axes), keepdims=int(keepdim))
    var = e.op("Mul", total, e.scalar(1.0 / (n - correction), fake(x).dtype))
    return (var, mean if keepdim else e.reshape(mean, fake(node)[1].shape))


@row(aten._softmax.default, aten._log_softmax.default)
def softmax(e, node, x, dim, half_to_float):
    if fake(x).ndim == 0:
        raise Refused("a scalar")
    x_ = e.get(x, fake(node).dtype)
    return e.op("Softmax" if node.target is aten._softmax.default else "LogSoftmax", x_, axis=dim % fake(x).ndim)


@row(aten.native_layer_norm.default)
def layer_norm(e, node, x, shape, w, b, eps):
    axis, dtype = fake(x).ndim - len(shape), fake(x).dtype
    axes = list(range(axis, fake(x).ndim))
    mean = e.op("ReduceMean", e.get(x), e.numbers(axes), keepdims=1)
    c = e.op("Sub", e.get(x), mean)
    var = e.op("ReduceMean", e.op("Mul", c, c), e.numbers(axes), keepdims=1)
    r = e.op("Reciprocal", e.op("Sqrt", e.op("Add", var, e.scalar(eps, dtype))))
    y = e.op("Mul", c, r)
    y = y if w is None else e.op("Mul", y, e.get(w))
    return (y if b is None else e.op("Add", y, e.get(b)), mean, r)


@row(aten._native_batch_norm_legit_no_training.default)
def batch_norm(e, node, x, w, b, mean, var, momentum, eps):
    _only(node, 0)
    if w is None or b is None:
        raise Refused("a normalisation without weights")
    return (e.op("BatchNormalization", e.get(x), e.get(w), e.get(b), e.get(mean), e.get(var), epsilon=eps), None, None)


def emit(e, node):
    """Writes one node and notes its value."""
    if node.target is operator.getitem:
        e.values[node] = e.values[node.args[0]][node.args[1]]
        if e.values[node] is None:
            raise Refused("an output that Kiln does not give")
        return
    f = TABLE.get(node.target)
    if f is None:
        raise Refused(f"no row for {node.target}")
    e.values[node] = f(e, node, *node.args, **node.kwargs)


def refusal(node):
    """Why a node cannot be said in Kiln's words ("": there is none for it); None where it can. It is tried alone."""
    if node.op != "call_function" or "val" not in node.meta:
        return "no operator on tensors"
    if node.target is operator.getitem:
        return refusal(node.args[0]) if isinstance(node.args[0], torch.fx.Node) else "no operator on tensors"
    if node.target not in TABLE:
        return ""
    if not static(node.meta["val"]):
        return "its result's dtype, place or shape"
    e = Emitter()
    for x in node.all_input_nodes:
        if not static(x.meta.get("val")):
            return "an argument's dtype, place or shape"
        e.values[x] = "x"
    try:
        emit(e, node)
        return None
    except (Refused, TypeError, KeyError, ValueError, IndexError) as why:
        return str(why)


def graph_of(gm):
    """(request, output nodes) of a module of supported nodes."""
    e, outputs = Emitter(), []
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            e.values[node] = f"in{len(e.inputs)}"
            e.inputs.append({"name": e.values[node], "dtype": DTYPES[fake(node).dtype], "shape": list(fake(node).shape)})
        elif node.op == "call_function":
            emit(e, node)
        elif node.op == "output":
            outputs = list(node.args[0]) if isinstance(node.args[0], (tuple, list)) else [node.args[0]]
        else:
            raise Refused(f"a node {node.op}")
    graph = {"inputs": e.inputs, "nodes": e.nodes, "outputs": [e.values[o] for o in outputs]}
    if e.constants:
        graph["constants"] = e.constants
    return {"graph": graph}, outputs
