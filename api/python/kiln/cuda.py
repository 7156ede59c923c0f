"""A model on a GPU: libcuda and the model's launcher (docs/abi.md) through ctypes. Arrays of main memory are copied there and back; PyTorch's CUDA tensors and
whatever has __cuda_array_interface__ are used where they lie, on their stream."""
import ctypes
import os
import threading

from . import arrays
from .errors import Unsupported
from .load import load

_P = ctypes.c_void_p


def driver():
    """libcuda, started. KILN_LIBCUDA names another than libcuda.so.1."""
    name = os.environ.get("KILN_LIBCUDA") or "libcuda.so.1"
    try:
        cu = ctypes.CDLL(name)
    except OSError as e:
        raise Unsupported(f"the model is for a GPU, and this machine has no CUDA driver: {e}") from None
    check(cu, cu.cuInit(0), "the CUDA driver does not start")
    return cu


def check(cu, result, what):
    if result:
        name = ctypes.c_char_p()
        cu.cuGetErrorName(result, ctypes.byref(name))
        raise Unsupported(f"{what}: {(name.value or b'CUDA error').decode()} ({result})")


def on_device(x):
    """(address, dtype, shape, stream) of an array in a GPU's memory; None: it lies elsewhere."""
    if arrays.is_torch(x):
        if x.device.type != "cuda":
            return None
        if not x.is_contiguous():
            raise Unsupported("the tensor is not contiguous; x.contiguous() is")
        stream = __import__("torch").cuda.current_stream(x.device).cuda_stream
        return x.data_ptr(), arrays.dtype_of_torch(x), tuple(x.shape), stream
    face = getattr(x, "__cuda_array_interface__", None)
    if face is None:
        return None
    if face.get("strides") is not None:
        raise Unsupported("an array with strides: a contiguous one is right")
    return face["data"][0], arrays.dtype_of_text(face["typestr"]), tuple(face["shape"]), face.get("stream") or 0


class Loaded:
    """A model in the primary context of device 0: modules, weights and arena are loaded once. Calls may come from several threads."""

    def __init__(self, model):
        m, self.lock = model.manifest, threading.Lock()
        if m.get("calls"):
            raise Unsupported("nodes of the model are left to the caller: on a GPU its launcher takes them (docs/abi.md)")
        self.manifest, self.cu = m, driver()
        images = [self._image(model, i, k) for i, k in enumerate(m["kernels"])]
        self.so = load(model._artifact("so"), m["entry"])
        self.context, device, context = None, ctypes.c_int(), _P()
        check(self.cu, self.cu.cuDeviceGet(ctypes.byref(device), 0) or self.cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "no GPU can be used")
        self.context, self.device, self.buffers, self.arenas = context, device, {}, {}
        self._function("load", _P, _P, _P)
        self._function("launch", *[_P] * 5)
        self._function("unload", _P)
        self._function("error").restype = ctypes.c_char_p
        self._function("arena").restype = ctypes.c_int64
        packed = model._artifact("weights") if any(w.get("offset", -1) >= 0 for w in m["weights"]) else b""
        bytes_of = [bytes(model._weight(w, packed)) if "sha256" in w else None for w in m["weights"]]
        self.model = _P()
        with self:
            tables = [(_P * max(1, len(x)))(*[ctypes.cast(i, _P).value if i is not None else None for i in x])
                      for x in (images, [ctypes.c_char_p(b) if b is not None else None for b in bytes_of])]
            self._done(self.load(ctypes.byref(self.model), *tables))

    def _image(self, model, i, kernel):
        kind = kernel["image"]["kind"]
        if kind not in ("cubin", "ptx"):
            raise Unsupported(f"kernel {i} of the model is {kind} only: the service has no toolchain for {self.manifest['target']['id']}")
        return ctypes.create_string_buffer(model.client.blob(kernel["image"]["sha256"]))

    def _function(self, name, *args):
        f = getattr(self.so, f"{self.manifest['entry']}_{name}")
        f.restype, f.argtypes = ctypes.c_int32, list(args)
        setattr(self, name, f)
        return f

    def __enter__(self):
        check(self.cu, self.cu.cuCtxPushCurrent_v2(self.context), "the context cannot be used")

    def __exit__(self, *_):
        self.cu.cuCtxPopCurrent_v2(None)

    def _done(self, result):
        if result:
            raise Unsupported(f"{self.error().decode()} ({result})")

    def _buffer(self, name, size):
        if name not in self.buffers:
            p = ctypes.c_uint64()
            check(self.cu, self.cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size + 16)), "no device memory")
            self.buffers[name] = p.value
        return self.buffers[name]

    def _place(self, a, kind, i, x, model):
        """(address on the device, stream or None, host view or None)"""
        there = on_device(x)
        if there is None:
            return self._buffer((kind, i), a["bytes"]), None, model._take(a, x, kind == "output")
        if there[1] != a["dtype"] or list(there[2]) != a["shape"]:
            raise Unsupported(f"{a['name']} is {there[1]}{list(there[2])} where the model takes {a['dtype']}{a['shape']}")
        return there[0], there[3], None

    def _arena(self, stream):
        """Each stream has its own: what runs on two streams may run at once. The first has the model's."""
        if stream not in self.arenas:
            self.arenas[stream] = None if not self.arenas else self._buffer(("arena", stream), self.arena())
        return self.arenas[stream]

    def __call__(self, model, given, outs):
        with self.lock, self:
            ins = [self._place(a, "input", i, x, model) for i, (a, x) in enumerate(zip(self.manifest["inputs"], given))]
            results = [self._place(a, "output", i, x, model) for i, (a, x) in enumerate(zip(self.manifest["outputs"], outs))]
            streams = {s for _, s, _ in ins + results if s is not None} or {0}
            if len(streams) > 1:
                raise Unsupported("the arrays are on different streams")
            for address, _, host in ins:
                if host is not None:
                    size = arrays.BYTES[host.dtype] * _count(host.shape)
                    check(self.cu, self.cu.cuMemcpyHtoD_v2(ctypes.c_uint64(address), _P(host.address), ctypes.c_size_t(size)), "an input")
            stream = streams.pop()
            tables = [(_P * max(1, len(x)))(*[p[0] for p in x]) for x in (ins, results)]
            self._done(self.launch(self.model, *tables, self._arena(stream), stream))
            if any(h is not None for _, _, h in ins + results):
                check(self.cu, self.cu.cuCtxSynchronize(), "the device stopped")
            for address, _, host in results:
                if host is not None:
                    size = arrays.BYTES[host.dtype] * _count(host.shape)
                    check(self.cu, self.cu.cuMemcpyDtoH_v2(_P(host.address), ctypes.c_uint64(address), ctypes.c_size_t(size)), "an output")

    def __del__(self):
        if getattr(self, "model", None):
            with self:
                self.unload(self.model)
                for p in self.buffers.values():
                    self.cu.cuMemFree_v2(ctypes.c_uint64(p))
        if getattr(self, "context", None):
            self.cu.cuDevicePrimaryCtxRelease_v2(self.device)


def _count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n
