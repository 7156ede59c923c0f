"""ATen operators that read or write at computed places, in ONNX's words; see fx.py. A place outside of a tensor is an error in PyTorch; in a kernel
a read of one gives an element of the edge or zero, and a write is dropped."""
import torch

from .fx import Refused, aten, fake, row

INTEGERS = (torch.int64, torch.int32)


def _index(x):
    if fake(x).dtype not in INTEGERS:
        raise Refused("places that are no integers")


def _places(e, x, indices):
    """(order of x's axes with those that are indexed first, a tensor of places by axis, the shape that indices have together, how many axes they name)."""
    used = [i for i, t in enumerate(indices) if t is not None]
    for i in used:
        _index(indices[i])
    shape = list(torch.broadcast_shapes(*[fake(indices[i]).shape for i in used]))
    order = used + [d for d in range(fake(x).ndim) if d not in used]
    one = []
    for i in used:
        t = e.get(indices[i], torch.int64)
        t = t if list(fake(indices[i]).shape) == shape else e.op("Expand", t, e.numbers(shape)) if shape else t
        one.append(e.reshape(t, shape + [1]))
    at = e.op("Concat", *one, axis=len(shape)) if len(one) > 1 else one[0]
    return used, order, at, shape


def _between(used, shape, rank):
    """Permutation from [places..., other axes...] to where PyTorch has the places: at the first indexed axis where those are neighbours, else in front."""
    n, rest = len(shape), rank - len(used)
    first = used[0] if used == list(range(used[0], used[0] + len(used))) else 0
    return [n + i for i in range(first)] + list(range(n)) + [n + i for i in range(first, rest)]


@row(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(e, node, x, indices):
    used = [i for i, t in enumerate(indices) if t is not None]
    if len(used) == 1:
        _index(indices[used[0]])
        return e.op("Gather", e.get(x), e.get(indices[used[0]]), axis=used[0])
    used, order, at, shape = _places(e, x, indices)
    y = e.op("GatherND", _turned(e, e.get(x), order), at)
    return _turned(e, y, _between(used, shape, fake(x).ndim))


def _turned(e, x, order):
    return x if order == sorted(order) else e.op("Transpose", x, perm=order)


@row(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(e, node, x, indices, values, accumulate=False):
    used, order, at, shape = _places(e, x, indices)
    t, rank = fake(x), fake(x).ndim
    if t.dtype == torch.bool and accumulate:
        raise Refused("sums of bools")
    rest = [t.shape[d] for d in order[len(used):]]
    there = _between(used, shape, rank)  # axes of the values as PyTorch has them: position -> axis of [places..., others...]
    whole = [(shape + rest)[i] for i in there]
    v = e.get(values, t.dtype)
    v = v if list(fake(values).shape) == whole else e.op("Expand", v, e.numbers(whole)) if whole else e.reshape(v, [])
    v = _turned(e, v, [there.index(i) for i in range(len(there))])
    y = e.op("ScatterND", _turned(e, e.get(x), order), at, v, reduction="add" if accumulate else "none")
    return _turned(e, y, [order.index(i) for i in range(rank)])


@row(aten.index_select.default)
def index_select(e, node, x, dim, at):
    if fake(x).ndim == 0 or fake(at).ndim != 1:
        raise Refused("a scalar")
    _index(at)
    return e.op("Gather", e.get(x), e.get(at), axis=dim % fake(x).ndim)


@row(aten.gather.default)
def gather(e, node, x, dim, at, **_):
    if fake(x).ndim == 0 or fake(at).ndim == 0:
        raise Refused("a scalar")
    return e.op("GatherElements", e.get(x), e.get(at), axis=dim % fake(x).ndim)


def _scatter(e, x, dim, at, values, reduction):
    """Values may be larger than the places: those in the corner count."""
    if fake(x).ndim == 0 or fake(at).ndim == 0:
        raise Refused("a scalar")
    if fake(x).dtype == torch.bool and reduction != "none":
        raise Refused("sums of bools")
    shape = list(fake(at).shape)
    if isinstance(values, torch.fx.Node) and fake(values).ndim:
        v = e.get(values, fake(x).dtype)
        if list(fake(values).shape) != shape:
            v = e.op("Slice", v, e.numbers([0] * len(shape)), e.numbers(shape), e.numbers(range(len(shape))))
    else:
        v = e.expanded(e.get(values, fake(x).dtype), shape)
    return e.op("ScatterElements", e.get(x), e.get(at), v, axis=dim % fake(x).ndim, reduction=reduction)


@row(aten.scatter.src, aten.scatter.value)
def scatter(e, node, x, dim, at, values):
    return _scatter(e, x, dim, at, values, "none")


@row(aten.scatter_add.default)
def scatter_add(e, node, x, dim, at, values):
    return _scatter(e, x, dim, at, values, "add")


@row(aten.scatter_reduce.two)
def scatter_reduce(e, node, x, dim, at, values, reduce, include_self=True):
    how = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}.get(reduce)
    if how is None or not include_self:
        raise Refused("a mean, or not of what is there before")
    return _scatter(e, x, dim, at, values, how)


@row(aten.max_pool2d_with_indices_backward.default)
def max_pool_backward(e, node, g, x, kernel, stride, padding, dilation, ceil_mode, indices):
    """A sum of the gradients at the places of the maxima."""
    shape, out = list(fake(x).shape), list(fake(g).shape)
    zero = e.expanded(e.scalar(0.0, fake(g).dtype), shape[:-2] + [shape[-2] * shape[-1]])
    flat = out[:-2] + [out[-2] * out[-1]]
    y = e.op("ScatterElements", zero, e.reshape(e.get(indices), flat), e.reshape(e.get(g), flat), axis=len(shape) - 2, reduction="add")
    return e.reshape(y, shape)
