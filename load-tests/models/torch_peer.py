"""An ONNX graph as a PyTorch module, node by node, so that Inductor is a peer of models that only exist as files. Weights are parameters, which
freezing makes constants. A node that is not in the table is a KeyError: that model then has no such peer."""
import onnx
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper


def padded(x, a, rank, value=0.0):
    """Padding as an argument where both ends are equal, else done beforehand."""
    p = list(a.get("pads", [0] * 2 * rank))
    if p[:rank] == p[rank:]:
        return x, p[:rank]
    flat = [q for d in reversed(range(rank)) for q in (p[d], p[d + rank])]
    return F.pad(x, flat, value=value), [0] * rank


def conv(a, x, w, b=None):
    x, p = padded(x, a, w.dim() - 2)
    f = F.conv1d if w.dim() == 3 else F.conv2d
    return f(x, w, b, a.get("strides", 1), p, a.get("dilations", 1), a.get("group", 1))


def maxpool(a, x):
    x, p = padded(x, a, 2, -float("inf"))
    return F.max_pool2d(x, a["kernel_shape"], a.get("strides", 1), p, ceil_mode=bool(a.get("ceil_mode", 0)))


def avgpool(a, x):
    if any(a.get("pads", [])) and not a.get("count_include_pad", 0):
        ones, p = padded(torch.ones_like(x[:1, :1]), a, 2)
        x, p = padded(x, a, 2)
        area = F.avg_pool2d(ones, a["kernel_shape"], a.get("strides", 1), p)
        return F.avg_pool2d(x, a["kernel_shape"], a.get("strides", 1), p) / area
    x, p = padded(x, a, 2)
    return F.avg_pool2d(x, a["kernel_shape"], a.get("strides", 1), p)


def gemm(a, x, w, c=None):
    x, w = (x.t() if a.get("transA") else x), (w.t() if a.get("transB") else w)
    return a.get("alpha", 1.0) * (x @ w) + (a.get("beta", 1.0) * c if c is not None else 0)


def batchnorm(a, x, s, b, m, v):
    return F.batch_norm(x, m, v, s, b, False, 0, a.get("epsilon", 1e-5))


def reduce_mean(a, x, axes=None):
    return x.mean([int(i) for i in (axes if axes is not None else a["axes"])], keepdim=bool(a.get("keepdims", 1)))


def reshape(a, x, s):
    return x.reshape([x.shape[i] if d == 0 else d for i, d in enumerate(int(v) for v in s)])


def norm(a, x, s, b=None):
    return F.layer_norm(x, x.shape[a.get("axis", -1):], s, b, a.get("epsilon", 1e-5))


def softmax(a, x, old=False):
    axis = a.get("axis", 1 if old else -1)
    return F.softmax(x.flatten(axis), -1).reshape(x.shape) if old else F.softmax(x, axis)


def axes_of(a, axes):
    return [int(i) for i in (axes if axes is not None else a.get("axes", []))]


def cast(a, x):
    """Of a shape, which is a list of numbers here, nothing: it stays what reshapes want."""
    return x if isinstance(x, list) else x.to({1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool}[a["to"]])


def cut(a, x, starts, ends, axes=None, steps=None):
    for start, end, axis, step in zip(starts, ends, axes or range(len(starts)), steps or [1] * len(starts)):
        if isinstance(x, list):
            x = x[start:end:step]
        else:
            x = x[(slice(None),) * (axis % x.dim()) + (slice(start, end, step),)]
    return x


def squeezed(a, x, axes=None):
    return x.squeeze(axes_of(a, axes) or [d for d in range(x.dim()) if x.shape[d] == 1])


def concat(a, *x):
    return sum(x, []) if isinstance(x[0], list) else torch.cat(x, a["axis"])


OPS = {
    "Conv": conv, "MaxPool": maxpool, "AveragePool": avgpool, "Gemm": gemm, "BatchNormalization": batchnorm, "ReduceMean": reduce_mean, "Reshape": reshape,
    "LayerNormalization": norm, "Softmax": softmax, "Relu": lambda a, x: F.relu(x), "Sigmoid": lambda a, x: torch.sigmoid(x),
    "Add": lambda a, x, y: x + y, "Sub": lambda a, x, y: x - y, "Mul": lambda a, x, y: x * y, "Div": lambda a, x, y: x / y,
    "Sum": lambda a, *x: sum(x[1:], x[0]), "Erf": lambda a, x: torch.erf(x), "Sqrt": lambda a, x: torch.sqrt(x), "Pow": lambda a, x, y: x ** y,
    "MatMul": lambda a, x, y: x @ y, "Clip": lambda a, x, lo=None, hi=None: torch.clamp(x, lo, hi), "Identity": lambda a, x: x, "Dropout": lambda a, x, *_: x,
    "GlobalAveragePool": lambda a, x: x.mean([2, 3], keepdim=True), "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
    "Concat": concat, "Transpose": lambda a, x: x.permute(a["perm"]),
    "Gather": lambda a, x, i: F.embedding(i, x) if x.dim() == 2 and not a.get("axis", 0) else x.index_select(a.get("axis", 0), i),
    "LRN": lambda a, x: F.local_response_norm(x, a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0)),
    "Shape": lambda a, x: list(x.shape), "Cast": cast, "Slice": cut, "Squeeze": squeezed, "Expand": lambda a, x, s: x.expand(torch.broadcast_shapes(x.shape, s)),
    "Equal": lambda a, x, y: x == y, "Max": lambda a, x, y: torch.maximum(torch.as_tensor(x), torch.as_tensor(y)), "Tanh": lambda a, x: torch.tanh(x),
    "Exp": lambda a, x: torch.exp(x), "Reciprocal": lambda a, x: torch.reciprocal(x), "GlobalMaxPool": lambda a, x: x.amax(list(range(2, x.dim())), keepdim=True),
    "ReduceSum": lambda a, x, axes=None: x.sum(axes_of(a, axes), keepdim=bool(a.get("keepdims", 1))),
    "ReduceMax": lambda a, x, axes=None: x.amax(axes_of(a, axes), keepdim=bool(a.get("keepdims", 1))),
    "Unsqueeze": lambda a, x, *axes: unsqueezed(x, a["axes"] if "axes" in a else [int(v) for v in axes[0]]),
}


def unsqueezed(x, axes):
    for d in sorted(axes):
        x = x.unsqueeze(d)
    return x


class Module(torch.nn.Module):
    def __init__(self, path):
        super().__init__()
        m = onnx.load(path)
        old = next(o.version for o in m.opset_import if not o.domain) < 13
        self.names, self.plan, self.whole = {}, [], {}
        for t in m.graph.initializer:
            a = torch.from_numpy(numpy_helper.to_array(t).copy())
            if a.dim() > 1 or a.is_floating_point() and a.dim():
                self.names[t.name] = f"p{len(self.names)}"
                self.register_parameter(self.names[t.name], torch.nn.Parameter(a, False))
            else:
                self.whole[t.name] = a.tolist()
        for n in m.graph.node:
            f, a = OPS[n.op_type], {x.name: helper.get_attribute_value(x) for x in n.attribute}
            if n.op_type == "Softmax" and old:
                f = lambda a, x: softmax(a, x, True)
            self.plan.append((f, a, list(n.input), n.output[0]))
        self.inputs = [i.name for i in m.graph.input if i.name not in self.names and i.name not in self.whole]
        self.output = m.graph.output[0].name

    def forward(self, *inputs):
        env = dict(zip(self.inputs, inputs))
        for f, a, names, out in self.plan:
            args = [getattr(self, self.names[n]) if n in self.names else self.whole[n] if n in self.whole else env[n] if n else None for n in names]
            env[out] = f(a, *args)
        return env[self.output]


def inductor(path, threads):
    """The compiled model as a function of a feed, weights frozen."""
    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    module = Module(path).eval()
    compiled = torch.compile(module)

    def run(feed):
        with torch.no_grad():
            return [compiled(*(torch.from_numpy(feed[n]) for n in module.inputs)).numpy()]

    return run
