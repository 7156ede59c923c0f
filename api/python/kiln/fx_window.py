"""Windows: where maxima stand, gradients of pooling and of transposed convolutions, resizing, PyTorch's own attention; see fx.py."""
import math

import torch

from .fx import Refused, _each, _pair, aten, fake, row


def where_maxima_stand(e, x, y, kernel, stride, padding, dilation):
    """For every window of x the place of its maximum y, counted over the two last axes: the first one that equals it."""
    (h, w), (oh, ow), t = fake(x).shape[-2:], y.shape[-2:], fake(x).dtype
    if oh * ow > 1 << 16:
        raise Refused("too many windows for indices of a pooling")
    lead = list(y.shape[:-2])
    rank = len(lead) + 2
    pads = [0] * (rank - 2) + list(padding)
    end = [max(0, (o - 1) * s + (k - 1) * d + 1 - n - p) for o, s, k, d, n, p in zip((oh, ow), stride, kernel, dilation, (h, w), padding)]
    padded = e.op("Pad", e.get(x), e.numbers(pads + [0] * (rank - 2) + end), e.scalar(torch.finfo(t).min, t)) if any(padding) or any(end) else e.get(x)
    rows = [o * stride[0] - padding[0] for o in range(oh)]
    cols = [o * stride[1] - padding[1] for o in range(ow)]
    first = e.constant("i64", [oh, ow], values=[r * w + c for r in rows for c in cols])
    at = None
    for i in reversed(range(kernel[0])):
        for j in reversed(range(kernel[1])):
            a, b = i * dilation[0], j * dilation[1]
            part = e.op("Slice", padded, e.numbers([a, b]), e.numbers([a + (oh - 1) * stride[0] + 1, b + (ow - 1) * stride[1] + 1]), e.numbers([rank - 2, rank - 1]), e.numbers(stride))
            here = e.op("Add", first, e.constant("i64", [], values=[a * w + b]))
            at = e.expanded(here, list(y.shape)) if at is None else e.op("Where", e.op("Equal", part, y.name), here, at)
    return at


class Value:
    """A value by name, and its shape."""

    def __init__(self, name, shape):
        self.name, self.shape = name, shape


@row(aten.max_pool2d_with_indices.default)
def max_pool(e, node, x, kernel, stride=(), padding=(0,), dilation=(1,), ceil_mode=False):
    kernel = _pair(kernel, ())
    stride, padding, dilation = _pair(stride, kernel), _pair(padding, (0,)), _pair(dilation, (1,))
    shape, out = list(fake(x).shape), list(fake(node)[0].shape)
    full = [1] * (4 - len(shape)) + shape
    y = e.op("MaxPool", e.reshape(e.get(x), full) if len(shape) < 4 else e.get(x), kernel_shape=kernel, strides=stride, pads=padding * 2, dilations=dilation, ceil_mode=int(ceil_mode))
    y = e.reshape(y, out) if len(shape) < 4 else y
    if all(user.args[1] == 0 for user in node.users):
        return (y, None)
    if not fake(x).dtype.is_floating_point or math.prod(kernel) > 64:
        raise Refused("indices of such a pooling")
    return (y, where_maxima_stand(e, x, Value(y, out), kernel, stride, padding, dilation))


@row(aten.avg_pool2d.default)
def avg_pool(e, node, x, kernel, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True, divisor_override=None):
    if ceil_mode or divisor_override:
        raise Refused("ceil_mode or a divisor")
    shape, kernel = list(fake(x).shape), _pair(kernel, ())
    y = e.reshape(e.get(x), [1] * (4 - len(shape)) + shape) if len(shape) < 4 else e.get(x)
    y = e.op("AveragePool", y, kernel_shape=kernel, strides=_pair(stride, kernel), pads=_pair(padding, (0,)) * 2, count_include_pad=int(count_include_pad))
    return e.reshape(y, fake(node).shape) if len(shape) < 4 else y


@row(aten.avg_pool2d_backward.default)
def avg_pool_backward(e, node, g, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Every gradient, divided, to its window: a transposed convolution by ones, a channel at a time."""
    kernel = _pair(kernel, ())
    stride, padding = _pair(stride, kernel), _pair(padding, (0,))
    if ceil_mode or divisor_override or (any(padding) and not count_include_pad):
        raise Refused("a divisor that differs from window to window")
    shape, out, t = list(fake(x).shape), list(fake(g).shape), fake(g).dtype
    planes = math.prod(shape[:-2])
    rest = [n + 2 * p - ((o - 1) * s + k) for n, p, o, s, k in zip(shape[-2:], padding, out[-2:], stride, kernel)]
    if any(r >= s and r > 0 for r, s in zip(rest, stride)):
        raise Refused("a rest that is longer than a step")
    w = e.expanded(e.scalar(1.0 / math.prod(kernel), t), [1, 1] + kernel)
    y = e.op("ConvTranspose", e.reshape(e.get(g), [planes, 1] + out[-2:]), w, strides=stride, pads=padding * 2, output_padding=rest)
    return e.reshape(y, shape)


@row(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool_backward(e, node, g, x):
    shape, out, t = list(fake(x).shape), list(fake(g).shape), fake(g).dtype
    if any(n % o for n, o in zip(shape[-2:], out[-2:])):
        raise Refused("bins of unequal extent")
    k = [n // o for n, o in zip(shape[-2:], out[-2:])]
    y = e.op("Mul", e.get(g), e.scalar(1.0 / math.prod(k), t))
    y = e.op("Expand", e.reshape(y, out[:-2] + [out[-2], 1, out[-1], 1]), e.numbers(out[:-2] + [out[-2], k[0], out[-1], k[1]]))
    return e.reshape(y, shape)


@row(aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default)
def nearest(e, node, x, size=None, *factors):
    scales = [o / n for o, n in zip(fake(node).shape[-2:], fake(x).shape[-2:])]
    if any(s != int(s) for s in scales):
        raise Refused("a factor that is no whole number")
    return e.op("Resize", e.get(x), "", "", e.numbers(fake(node).shape), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@row(aten.upsample_nearest2d_backward.default, aten.upsample_nearest2d_backward.grad_input)
def nearest_backward(e, node, g, out, shape, *_):
    k = [o / n for o, n in zip(fake(g).shape[-2:], shape[-2:])]
    if any(s != int(s) for s in k):
        raise Refused("a factor that is no whole number")
    a, (h, w) = list(shape[:-2]), shape[-2:]
    y = e.reshape(e.get(g), a + [h, int(k[0]), w, int(k[1])])
    return e.op("ReduceSum", y, e.numbers([len(a) + 1, len(a) + 3]), keepdims=0)


def _scores(e, q, k, mask, scale):
    """Products of queries and keys, scaled, with the mask added; in the dtype of q."""
    t, n = fake(q).dtype, fake(k).ndim
    scale = scale if scale is not None else fake(q).shape[-1] ** -0.5
    s = e.op("MatMul", e.get(q), e.op("Transpose", e.get(k), perm=list(range(n - 2)) + [n - 1, n - 2]))
    s = e.op("Mul", s, e.scalar(float(scale), t))
    return s if mask is None else e.op("Add", s, e.get(mask, t))


def _plain(q, k, v, causal, dropout):
    if dropout or fake(q).dtype not in (torch.float32, torch.float64):
        raise Refused("dropout or half floats")
    if causal and fake(q).shape[-2] != fake(k).shape[-2]:
        raise Refused("a causal mask of another shape")
    if fake(q).shape[:-2] != fake(k).shape[:-2]:
        raise Refused("groups of heads")


def _causal(e, s, q, low):
    """s below the diagonal, `low` above."""
    n = fake(q).shape[-2]
    a, b = e.reshape(e.numbers(range(n)), [n, 1]), e.numbers(range(n))
    return e.op("Where", e.op("GreaterOrEqual", a, b), s, e.scalar(low, fake(q).dtype))


@row(aten._scaled_dot_product_flash_attention_for_cpu.default)
def attention(e, node, q, k, v, dropout=0.0, is_causal=False, attn_mask=None, scale=None):
    """The result, and the logarithms of the sums of exponentials."""
    _plain(q, k, v, is_causal, dropout)
    s = _scores(e, q, k, attn_mask, scale)
    s = _causal(e, s, q, -1e30) if is_causal else s
    axes = e.numbers([fake(q).ndim - 1])
    m = e.op("ReduceMax", s, axes, keepdims=1)
    p = e.op("Exp", e.op("Sub", s, m))
    z = e.op("ReduceSum", p, axes, keepdims=1)
    y = e.op("MatMul", e.op("Div", p, z), e.get(v))
    return (y, e.reshape(e.op("Add", m, e.op("Log", z)), fake(node)[1].shape))


@row(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attention_backward(e, node, g, q, k, v, out, lse, dropout, is_causal, attn_mask=None, scale=None):
    """p = exp(s - lse); dv = p' g, ds = p * (g v' - sum of g * out), dq = ds k, dk = ds' q, both scaled."""
    _plain(q, k, v, is_causal, dropout)
    t, n = fake(q).dtype, fake(q).ndim
    turn = list(range(n - 2)) + [n - 1, n - 2]
    s = e.op("Sub", _scores(e, q, k, attn_mask, scale), e.reshape(e.get(lse), list(fake(lse).shape) + [1]))
    p = e.op("Exp", _causal(e, s, q, -1e30) if is_causal else s)
    dv = e.op("MatMul", e.op("Transpose", p, perm=turn), e.get(g))
    dp = e.op("MatMul", e.get(g), e.op("Transpose", e.get(v), perm=turn))
    d = e.op("ReduceSum", e.op("Mul", e.get(g), e.get(out)), e.numbers([n - 1]), keepdims=1)
    scale = scale if scale is not None else fake(q).shape[-1] ** -0.5
    ds = e.op("Mul", e.op("Mul", p, e.op("Sub", dp, d)), e.scalar(float(scale), t))
    return (e.op("MatMul", ds, e.get(k)), e.op("MatMul", e.op("Transpose", ds, perm=turn), e.get(q)), dv)
