"""A kernel: its answer from the service, its bytes, and the call."""
import ctypes
import os
import tempfile
import threading

from . import arrays
from .errors import Unsupported
from .load import Pool, check_features, load


def aligned(size, align=64):
    """(owner, address) of `size` bytes at a multiple of `align`."""
    raw = ctypes.create_string_buffer(size + align)
    address = ctypes.addressof(raw)
    return raw, (address + align - 1) // align * align


class Packed:
    """What Kernel.prepack gives."""

    def __init__(self, key, name, owner, address):
        self.key, self.name, self.owner, self.address = key, name, owner, address


class Kernel:
    """Callable with arrays in the order of `inputs`, or by their names. `stale`: the service did not answer, this is the cached kernel."""

    def __init__(self, client, answer, stale=False):
        self.client, self.answer, self.stale = client, answer, stale
        self.key, self.build = answer["key"], answer["build"]
        self.manifest = answer["manifest"]
        binding = answer.get("binding") or {}
        named = {canonical: name for name, canonical in binding.items()}
        order = {canonical: i for i, canonical in enumerate(binding.values())}
        self._inputs = [dict(a, name=named.get(a["name"], a["name"]), slot=i) for i, a in enumerate(self.manifest["inputs"])]
        self._outputs = [dict(a, name=named.get(a["name"], a["name"])) for a in self.manifest["outputs"]]
        wanted = answer.get("order")
        if wanted:
            self._inputs.sort(key=lambda a: wanted.index(a["name"]) if a["name"] in wanted else len(wanted) + order.get(a["name"], 0))
        self._lock, self._so, self._scratch = threading.Lock(), None, threading.local()

    inputs = property(lambda self: [a["name"] for a in self._inputs], doc="names of the arguments, in the order of a call")
    outputs = property(lambda self: [a["name"] for a in self._outputs])

    def __repr__(self):
        def one(a):
            return f"{a['name']}: {a['dtype']}{a['shape']}"
        return f"<kiln.Kernel {self.key[:12]} ({', '.join(map(one, self._inputs))}) -> {', '.join(map(one, self._outputs))}>"

    def artifact(self, kind):
        """Bytes of "source", "header", "launcher", "so", "ptx" or "cubin"."""
        for a in self.answer["artifacts"]:
            if a["kind"] == kind:
                return self.client.blob(a["sha256"])
        raise Unsupported(f"this kernel has no {kind}; it has {', '.join(a['kind'] for a in self.answer['artifacts'])}")

    def _bind(self):
        with self._lock:
            if self._so is not None:
                return
            check_features(self.manifest["target"].get("features", []))
            if self.manifest.get("kiln_abi") != 1:
                raise Unsupported(f"the kernel speaks ABI {self.manifest.get('kiln_abi')}; this client knows 1")
            if self.manifest.get("language") != "c":
                device = self.manifest["target"].get("id", "another device")
                raise Unsupported(f"a kernel for {device} takes that device's memory: its launcher is for callers that have such")
            so = load(self.artifact("so"), self.manifest["entry"])
            entry = self.manifest["entry"]
            self._call, self._workspace = getattr(so, entry), getattr(so, entry + "_workspace")
            self._call.restype, self._call.argtypes = ctypes.c_int32, [ctypes.c_void_p] * 3 + [ctypes.POINTER(Pool)]
            self._workspace.restype, self._workspace.argtypes = ctypes.c_int64, [ctypes.c_int32]
            self._so = so

    def _prepack(self, slot, address):
        """(owner, address) of what the kernel takes as that input: a packed copy made by its prepack entry, or the input itself."""
        make = getattr(self._so, f"{self.manifest['entry']}_prepack_{slot}", None)
        if make is None:
            return None, address
        make.restype, make.argtypes = ctypes.c_int64, [ctypes.c_void_p] * 2
        owner, to = aligned(max(1, make(None, None)))
        make(address, to)
        return owner, to

    def prepack(self, name, x):
        """A constant input in the order in which the kernel reads it, to be given in its place as often as the kernel is called."""
        if self._so is None:
            self._bind()
        a = self._inputs[self.inputs.index(name)]
        v = self._take(a, x)
        owner, address = self._prepack(a["slot"], v.address)
        return Packed(self.key, a["name"], (owner, v, x), address)

    def _work(self, threads):
        kept = getattr(self._scratch, "kept", None)
        if kept is None or kept[0] != threads:
            size = self._workspace(threads)
            kept = self._scratch.kept = (threads, *(aligned(size) if size else (None, None)))
        return kept[2]

    def _take(self, a, x, writable=False):
        if isinstance(x, Packed):
            if (x.key, x.name) != (self.key, a["name"]):
                raise Unsupported(f"{a['name']} was packed for another kernel or input")
            return x
        v = arrays.view(x)
        if v.dtype != a["dtype"] or list(v.shape) != a["shape"]:
            got = f"{v.dtype}{list(v.shape)}"
            raise Unsupported(f"{a['name']} is {got} where the kernel takes {a['dtype']}{a['shape']}")
        if v.address % a.get("align_bytes", 1):
            raise Unsupported(f"{a['name']} is not aligned to {a['align_bytes']} bytes")
        if writable and not v.writable:
            raise Unsupported(f"{a['name']} cannot be written to")
        return v

    def __call__(self, *args, out=None, pool=None, **named):
        """pool: a kiln.native.Pool to run on; without one the call is serial. out: arrays to write to, one or a list."""
        run, outs = self.bound(*args, out=out, pool=pool, **named)
        run()
        return outs[0] if len(outs) == 1 else outs

    def bound(self, *args, out=None, pool=None, **named):
        """(run, outputs): a call that has been checked once. run() reads the same arrays again, which it keeps alive, and writes to `outputs`."""
        if self._so is None:
            self._bind()
        args = list(args) + [None] * (len(self._inputs) - len(args))
        if len(args) > len(self._inputs):
            raise TypeError(f"{len(args)} arrays for a kernel of {len(self._inputs)}: {', '.join(self.inputs)}")
        for name, x in named.items():
            if name not in self.inputs:
                raise TypeError(f"no input {name!r}: {', '.join(self.inputs)} are")
            args[self.inputs.index(name)] = x
        missing = [a["name"] for a, x in zip(self._inputs, args) if x is None]
        if missing:
            raise TypeError(f"no array for {', '.join(missing)}")
        held = [self._take(a, x) for a, x in zip(self._inputs, args)]
        like = args[0] if args else None
        given = [out] if out is not None and not isinstance(out, (list, tuple)) else out
        outs = list(given) if given is not None else [arrays.empty(like, a["dtype"], a["shape"]) for a in self._outputs]
        if len(outs) != len(self._outputs):
            raise TypeError(f"{len(outs)} arrays to write to for a kernel with {len(self._outputs)} outputs")
        written = [self._take(a, x, True) for a, x in zip(self._outputs, outs)]
        inputs = (ctypes.c_void_p * max(1, len(held)))()
        once = []  # constants that nobody packed ahead
        for a, v in zip(self._inputs, held):
            owner, inputs[a["slot"]] = (None, v.address) if isinstance(v, Packed) else self._prepack(a["slot"], v.address)
            once.append(owner)
        outputs = (ctypes.c_void_p * len(written))(*[v.address for v in written])
        raw = pool.raw if pool is not None else None
        threads = raw.contents.nthreads if raw else 1

        def run(kept=(held, written, once, pool)):
            status = self._call(inputs, outputs, self._work(threads), raw)
            if status:
                raise Unsupported(f"the kernel returned {status}")
        return run, outs

    def tvm_ffi(self):
        """The same kernel as a TVM-FFI function (needs the package apache-tvm-ffi): inputs, then outputs, in the kernel's own order."""
        import tvm_ffi
        check_features(self.manifest["target"].get("features", []))
        folder = tempfile.mkdtemp(prefix="kiln-")
        path = os.path.join(folder, "kernel.so")
        try:
            with open(path, "wb") as f:
                f.write(self.artifact("so"))
            return getattr(tvm_ffi.load_module(path), self.manifest["entry"])
        finally:
            os.unlink(path)
            os.rmdir(folder)
