"""torch.compile(model, backend="kiln"): parts of a graph that Kiln can compile run as its kernels, forward and backward; the rest, and whatever goes
wrong, runs as PyTorch has it, and says so.

Shapes that change: every set of shapes is compiled for itself (at most KILN_SHAPES of a graph, default 32; further ones run in PyTorch).

KILN_WAIT: seconds that the first call waits for a part (default 20); a part that takes longer runs in PyTorch until it is there.
KILN_MIN_NODES: parts with fewer nodes that compute are left to PyTorch (default 2). KILN_THREADS: threads, when libkiln-client is found (default:
PyTorch's own). KILN_REFRESH: seconds between looks for newer versions of kernels, which are taken while the program runs (default 60; 0: never)."""
import os
import threading
import warnings

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from . import fx, fx_index, fx_math, fx_window  # noqa: F401 rows of fx.TABLE
from .client import default_client
from .errors import Error, Fallback, ServiceError, Unavailable

aten = torch.ops.aten
_MOVES = {aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims,
          aten.squeeze.default, aten.permute.default, aten.t.default, aten.transpose.int, aten.expand.default, aten.clone.default,
          aten.alias.default, aten.detach.default, aten.scalar_tensor.default, aten.full.default, aten.select.int, aten.slice.Tensor}
parts = []  # of every graph, newest last: what runs where, and why
left = {}   # operators that stayed in PyTorch, of every graph: name -> why


def _pool():
    from .native import Pool
    threads = int(os.environ.get("KILN_THREADS") or torch.get_num_threads())
    if threads < 2:
        return None
    try:
        return Pool(threads)
    except Error:
        return None


_shared, _shared_lock = [], threading.Lock()


def pool():
    with _shared_lock:
        if not _shared:
            _shared.append(_pool())
        return _shared[0]


def _laid_out(x, strides):
    """x in memory as PyTorch has it there: elements that share a place (of an expanded tensor) are there once."""
    once = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
    y = x[once]
    return torch.empty_strided(y.shape, strides, dtype=x.dtype).copy_(y).expand(x.shape)


class Part(torch.nn.Module):
    """A part of a graph: PyTorch's own module, and Kiln's model as soon as there is one. `state`: "kiln", "waiting" or "pytorch"; `why`."""

    def __init__(self, eager, client):
        super().__init__()
        self.eager, self.client, self.model, self.state, self.why = eager, client, None, "waiting", ""
        self.lock = threading.Lock()
        try:
            self.request, outputs = fx.graph_of(eager)
        except (fx.Refused, KeyError, TypeError) as e:
            self._give_up(f"the part cannot be said in Kiln's words: {e}")
            return
        values = [fx.fake(o) for o in outputs]
        self.strides = [None if v.is_contiguous() else tuple(v.stride()) for v in values]
        output = next(n for n in eager.graph.nodes if n.op == "output")
        self.single = not isinstance(output.args[0], (tuple, list))
        self._compile(float(os.environ.get("KILN_WAIT") or 20))

    def _give_up(self, why):
        self.state, self.why, self.model = "pytorch", why, None
        warnings.warn(f"kiln: a part of the graph runs in PyTorch: {why}", Fallback, stacklevel=2)

    def _take(self, wait):
        try:
            model = self.client.compile_graph(self.request, wait=wait)
        except ServiceError as e:
            if e.status in (429, 503):  # full, or starting: another time
                raise Unavailable(str(e)) from None
            raise
        model.bind()
        self.model, self.state, self.why = model, "kiln", ""

    def _compile(self, wait):
        try:
            self._take(wait)
        except Unavailable as e:
            self.why = str(e)
            warnings.warn(f"kiln: a part of the graph runs in PyTorch until its kernels are there: {e}", Fallback, stacklevel=2)
            threading.Thread(target=self._later, daemon=True).start()
        except Exception as e:  # any: a part never fails where PyTorch would not
            self._give_up(f"{type(e).__name__}: {e}")

    def _later(self):
        """A slow compile, or a service that is away: asked again at growing intervals for about an hour."""
        for pause in (1, 2, 4, 8, 15, 30, 60) + (120,) * 28:
            threading.Event().wait(pause)
            try:
                self._take(60)
                return
            except Unavailable:
                continue
            except Exception as e:
                self._give_up(f"{type(e).__name__}: {e}")
                return
        self._give_up("the service did not answer for an hour")

    def refresh(self):
        """Takes newer versions of kernels, when there are any."""
        if self.state == "kiln":
            builds = [k.build for k in self.model._kernels]
            try:
                if [self.client.kernel(k["key"]).build for k in self.model.manifest["kernels"]] != builds:
                    self._take(60)
            except Error:
                pass

    def forward(self, *args):
        model = self.model
        if model is None:
            return self.eager(*args)
        try:
            outs = model(*[a.detach().contiguous() for a in args], out=[self._empty(a) for a in model.manifest["outputs"]], pool=pool())
        except Exception as e:  # any: see above
            self._give_up(f"{type(e).__name__}: {e}")
            return self.eager(*args)
        outs = outs if isinstance(outs, list) else [outs]
        outs = [o if s is None else _laid_out(o, s) for o, s in zip(outs, self.strides)]
        return outs[0] if self.single else outs

    def _empty(self, a):
        return torch.empty(a["shape"], dtype=next(k for k, v in fx.DTYPES.items() if v == a["dtype"]))


class _Support(OperatorSupportBase):
    def __init__(self):
        self.known = {}

    def is_node_supported(self, submodules, node):
        if node not in self.known:
            self.known[node] = fx.refusal(node) is None
        return self.known[node]


def _computes(partition):
    return sum(n.op == "call_function" and n.target not in _MOVES and n.target is not fx.operator.getitem for n in partition.nodes)


def _tell(gm):
    """Says, once an operator, which ones Kiln cannot take."""
    new = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is not fx.operator.getitem and str(node.target) not in left:
            why = fx.refusal(node)
            if why is not None:
                new[str(node.target)] = why
    left.update(new)
    if new:
        said = ", ".join(f"{t} ({w})" if w else t for t, w in sorted(new.items()))
        warnings.warn(f"kiln: these operators run in PyTorch: {said}", Fallback, stacklevel=2)


def compile_fx(gm, example_inputs):
    """For AOTAutograd: a functional graph of ATen operators to a function of a list."""
    least = int(os.environ.get("KILN_MIN_NODES") or 2)
    partitioner = CapabilityBasedPartitioner(gm, _Support(), allows_single_node_partition=True)
    chosen = [p for p in partitioner.propose_partitions() if _computes(p) >= least]
    _tell(gm)
    client = default_client()
    if chosen:
        gm = partitioner.fuse_partitions(chosen)
        for node in [n for n in gm.graph.nodes if n.op == "call_module" and n.name.startswith("fused_")]:
            part = Part(getattr(gm, node.target), client)
            parts.append(part)
            setattr(gm, node.target, part)
        gm.recompile()

    def run(args):
        given = list(args)
        args.clear()
        return gm(*given)
    run._boxed_call = True
    return run


# What PyTorch says in simpler operators, beside its core ones, and Kiln has no row for. Nothing random is among them: PyTorch's own kernels draw the numbers
# that eager PyTorch draws.
_SIMPLER = [aten.native_group_norm, aten._native_batch_norm_legit, aten._native_batch_norm_legit_functional, aten.native_batch_norm, aten._batch_norm_with_update,
            aten.native_layer_norm_backward, aten.gelu_backward, aten._softmax_backward_data, aten._log_softmax_backward_data, aten.threshold_backward,
            aten.silu_backward, aten.tanh_backward, aten.sigmoid_backward, aten.elu, aten._adaptive_avg_pool2d, aten.upsample_bilinear2d,
            aten.unfold, aten.linalg_vector_norm, aten.grid_sampler_2d, aten.prelu, aten.index_add, aten.index_copy, aten.atan2]
_decompositions = {op: f for op, f in {**get_decompositions(_SIMPLER), **core_aten_decompositions()}.items() if op not in fx.TABLE}
_compiled = aot_autograd(fw_compiler=compile_fx, bw_compiler=compile_fx, decompositions=_decompositions)


def _static(gm, inputs, **how):
    return _compiled(gm, inputs, **how)


def _kind(x):
    """What a compiled function depends on of an argument."""
    return (tuple(x.shape), tuple(x.stride()), x.dtype, x.device.type, x.requires_grad) if isinstance(x, torch.Tensor) else x


class _ByShape:
    """A graph with open dimensions: traced again, and compiled, for the shapes of a call that are new."""

    def __init__(self, gm):
        self.gm, self.known, self.lock, self.told = gm, {}, threading.Lock(), False
        self.most = int(os.environ.get("KILN_SHAPES") or 32)

    def _make(self, args):
        if len(self.known) >= self.most:
            if not self.told:
                self.told = True
                warnings.warn(f"kiln: a graph was called with more than {self.most} sets of shapes; further ones run in PyTorch (KILN_SHAPES)", Fallback, stacklevel=2)
            return self.gm.forward
        try:
            return _static(self.gm, list(args))
        except Exception as e:  # any: a graph never fails where PyTorch would not
            warnings.warn(f"kiln: a graph runs in PyTorch: {type(e).__name__}: {e}", Fallback, stacklevel=2)
            return self.gm.forward

    def __call__(self, *args):
        key = (torch.is_grad_enabled(), *map(_kind, args))
        f = self.known.get(key)
        if f is None:
            with self.lock:
                f = self.known.get(key) or self._make(args)
                if len(self.known) < self.most:
                    self.known[key] = f
        return f(*args)


def _open(x):
    return isinstance(x, torch.SymInt) or (isinstance(x, torch.Tensor) and any(isinstance(n, torch.SymInt) for n in x.shape))


def backend(gm, example_inputs):
    """For torch.compile."""
    _watch()
    return _ByShape(gm) if any(map(_open, example_inputs)) else _static(gm, example_inputs)


def refresh():
    """Takes newer versions of the kernels of every part."""
    for part in list(parts):
        part.refresh()


_watching = []


def _watch():
    """Starts the thread that takes newer versions, once."""
    seconds = float(os.environ.get("KILN_REFRESH") or 60)
    with _shared_lock:
        if _watching or seconds <= 0:
            return
        _watching.append(threading.Thread(target=_refresh_for_ever, args=(seconds,), daemon=True))
    _watching[0].start()


def _refresh_for_ever(seconds):
    while True:
        threading.Event().wait(seconds)
        refresh()
