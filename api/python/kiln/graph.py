"""A whole model: its plan from the service, kernels and weights by digest, one call that runs all steps."""
import ctypes
import json
import mmap
import os
import threading
import time
import urllib.parse

from . import arrays
from .cache import sha256
from .errors import DigestError, Error, ServiceError, Unavailable, Unsupported
from .kernel import Kernel, aligned
from .left import Left, Run
from .load import check_features, load
from .wire import slim


class _Call(ctypes.Structure):
    """kiln_graph_call of the ABI (docs/abi.md)."""
    _fields_ = [(name, ctypes.c_void_p) for name in ("kernels", "weights", "feeds", "results", "arena", "workspace", "pool", "caller", "user")]


class Model:
    """Callable with arrays in the order of `inputs`, or by their names; gives a list of outputs, or the one output.
    `kernels`: kernel keys, each with how it was found (Cache-Status)."""

    def __init__(self, client, answer, weights=None, stale=False, body=None, left=None):
        self.client, self.answer, self.stale = client, answer, stale
        self.key, self.manifest = answer["key"], answer["manifest"]
        self.kernels = answer.get("kernels", [])
        if self.manifest.get("kiln_abi") != 1 or self.manifest.get("kind") != "graph":
            raise Unsupported("this is no model of ABI 1")
        self._given = weights or {}
        calls = self.manifest.get("calls")
        self.left = Left(calls, body, left) if calls else None
        self._lock, self._entry, self._free, self._cuda = threading.Lock(), None, [], None

    inputs = property(lambda self: [a["name"] for a in self.manifest["inputs"]])
    outputs = property(lambda self: [a["name"] for a in self.manifest["outputs"]])

    def _artifact(self, kind):
        for a in self.answer["artifacts"]:
            if a["kind"] == kind:
                return self.client.blob(a["sha256"])
        raise Unsupported(f"this model has no {kind}; it has {', '.join(a['kind'] for a in self.answer['artifacts'])}")

    def _weight(self, w, packed):
        if "splat" in w:
            element = bytes.fromhex(w["splat"])
            return element * (w["bytes"] // len(element))
        data = packed[w["offset"]:w["offset"] + w["bytes"]] if w["offset"] >= 0 else self._given.get(w["sha256"], b"")
        if len(data) != w["bytes"] or sha256(data) != w["sha256"]:
            raise DigestError(f"the weight {w['name']} does not have the bytes with SHA-256 {w['sha256']}")
        return data

    def _run_once(self, table):
        """The steps that make weights of constants; their own arena is needed no longer than they are."""
        arena_bytes, run = (getattr(self._so, self.manifest["entry"] + suffix) for suffix in ("_once_arena", "_once"))
        arena_bytes.restype, arena_bytes.argtypes, run.restype, run.argtypes = ctypes.c_int64, [], ctypes.c_int32, [ctypes.c_void_p]
        arena, work = aligned(max(1, arena_bytes())), aligned(max(1, max([k._workspace(1) for k in self._kernels] or [0])))
        status = run(ctypes.byref(_Call(ctypes.addressof(self._table), ctypes.addressof(table), None, None, arena[1], work[1], None, None, None)))
        if status:
            raise Unsupported(f"step {status} of those that run once failed")

    def _bind_weights(self):
        """Weights as they came; then what the steps that run once make of them; then what kernels want packed. What no step reads is let go."""
        weights, owners = self.manifest["weights"], {}
        table = (ctypes.c_void_p * max(1, len(weights)))()
        packed = self._artifact("weights") if any(w.get("offset", -1) >= 0 for w in weights) else b""
        for i, w in enumerate(weights):
            if "of" in w:
                continue
            owners[i], table[i] = aligned(max(1, w["bytes"]))
            if not w.get("once"):
                data = self._weight(w, packed)
                memoryview((ctypes.c_char * w["bytes"]).from_address(table[i])).cast("B")[:] = data
        if "once" in self.manifest:
            self._run_once(table)
        kept = {a[1] for s in self.manifest["steps"] for a in s["args"] if a[0] == "weight"}
        for i, w in enumerate(weights):
            if "of" in w:
                owners[i], table[i] = self._kernels[w["kernel"]]._prepack(w["input"], table[w["of"]])
                if table[i] == table[w["of"]]:
                    kept.add(w["of"])
        for i in set(owners) - kept:
            table[i] = None
        self._held, self._weights = [owners[i] for i in owners if i in kept], table

    def bind(self):
        """Fetches, checks and loads everything. The first call does it by itself."""
        with self._lock:
            if self._entry is not None:
                return self
            if self.manifest.get("language") == "cuda":
                from .cuda import Loaded
                self._entry = self._cuda = Loaded(self)
                return self
            check_features(self.manifest["target"].get("features", []))
            self._kernels = [self.client.kernel(k["key"]) for k in self.manifest["kernels"]]
            for k in self._kernels:
                k._bind()
            self._table = (ctypes.c_void_p * max(1, len(self._kernels)))()
            for i, k in enumerate(self._kernels):
                self._table[i] = ctypes.cast(k._call, ctypes.c_void_p).value
            self._so = load(self._artifact("so"), self.manifest["entry"])
            self._bind_weights()
            entry = getattr(self._so, self.manifest["entry"])
            entry.restype, entry.argtypes = ctypes.c_int32, [ctypes.c_void_p]
            self._entry = entry
            return self

    def _memory(self, threads):
        """(owner, arena, owner, workspace): kept from an earlier call, so that calls at the same time have their own."""
        with self._lock:
            for i, m in enumerate(self._free):
                if m[0] == threads:
                    return self._free.pop(i)
        work = max([k._workspace(threads) for k in self._kernels] or [0])
        return (threads, *aligned(max(1, self.manifest["arena"]["bytes"])), *aligned(max(1, work)))

    def _take(self, a, x, writable=False):
        v = arrays.view(x)
        if v.dtype != a["dtype"] or list(v.shape) != a["shape"]:
            raise Unsupported(f"{a['name']} is {v.dtype}{list(v.shape)} where the model takes {a['dtype']}{a['shape']}")
        if writable and not v.writable:
            raise Unsupported(f"{a['name']} cannot be written to")
        return v

    def __call__(self, *args, out=None, pool=None, **named):
        if self._entry is None:
            self.bind()
        wanted, given = self.manifest["inputs"], list(args) + [None] * (len(self.manifest["inputs"]) - len(args))
        for name, x in named.items():
            given[self.inputs.index(name)] = x
        if len(given) > len(wanted) or any(x is None for x in given):
            raise TypeError(f"the model takes {len(wanted)} arrays: {', '.join(self.inputs)}")
        if self._cuda is not None:
            outs = list(out) if out is not None else [arrays.empty(given[0] if given else None, a["dtype"], a["shape"]) for a in self.manifest["outputs"]]
            self._cuda(self, given, outs)
            return outs[0] if len(outs) == 1 else outs
        held = [self._take(a, x) for a, x in zip(wanted, given)]
        like = given[0] if given else None
        if out is not None and any(a.get("held") for a in wanted + self.manifest["outputs"]):
            raise Unsupported("an output without a static shape cannot be written to an array that is there already")
        outs = list(out) if out is not None else [arrays.empty(like, a["dtype"], a["shape"]) for a in self.manifest["outputs"]]
        written = [self._take(a, x, True) for a, x in zip(self.manifest["outputs"], outs)]
        feeds = (ctypes.c_void_p * max(1, len(held)))(*[v.address for v in held])
        results = (ctypes.c_void_p * max(1, len(written)))(*[v.address for v in written])
        raw = pool.raw if pool is not None else None
        memory = self._memory(raw.contents.nthreads if raw else 1)
        run = Run(self.left) if self.left else None
        call = _Call(ctypes.addressof(self._table), ctypes.addressof(self._weights), ctypes.addressof(feeds), ctypes.addressof(results),
                     memory[2], memory[4], ctypes.cast(raw, ctypes.c_void_p).value if raw else None, run.address if run else None, None)
        status = self._entry(ctypes.byref(call))
        with self._lock:
            self._free.append(memory)
        if run and run.wrong is not None:
            raise run.wrong
        if status:
            raise Unsupported(f"step {status} of the model failed")
        for i, a in enumerate(self.manifest["outputs"]):
            if a.get("held"):
                outs[i] = arrays.like(given[0] if given else None, run.held[a["name"]])
        return outs[0] if len(outs) == 1 else outs


def _extents(name, extent):
    """batch: 3; x: (1, 3) as a whole shape. A rank of 1 is said by its number, "x:0"."""
    if isinstance(extent, int):
        return f"{name}:{extent}"
    return f"{name}:0:{extent[0]}" if len(extent) == 1 else f"{name}:{'x'.join(map(str, extent))}"


def compile_model(client, body, onnx, target=None, dims=None, bind=None, wait=None, progress=None, weights=None, partial=False, left=None,
                  folder=None):
    """body: bytes of an ONNX file, or of a request with a graph. dims: {"batch": 1} or {"x": (1, 3, 224, 224)}; bind: {"sr": 16000}.
    progress: called with (done, total). wait: seconds. partial, left: what cannot be compiled is run here (left.py).
    folder: where files lie in which the model keeps weights."""
    whole, weights = body, dict(weights or {})
    if onnx:
        body, own = slim(body, sha256, _reader(folder) if folder is not None else None)
        weights.update(own)
    members = {"target": target, "dims": ",".join(_extents(name, extent) for name, extent in (dims or {}).items()),
               "bind": ",".join(f"{name}:{value!r}" for name, value in (bind or {}).items()),
               "partial": "true" if partial else ""}
    query = urllib.parse.urlencode({k: v for k, v in members.items() if v})
    path = "/v1/graphs" + ("?" + query if query else "")
    headers = {"Content-Type": "application/onnx" if onnx else "application/json", "Accept": "application/json"}
    until = time.monotonic() + (client.transport.timeout if wait is None else wait)
    digest = sha256(body + b"\0" + path.encode() + client.transport.url.encode())
    _, kept = client.cache.answer(digest)
    try:
        answer = _wait(client, path, body, headers, until, progress)
    except Unavailable:
        if kept is None:
            raise
        return Model(client, kept, weights, True, whole if onnx else None, left)
    client.cache.put_answer(digest, "", answer)
    return Model(client, answer, weights, False, whole if onnx else None, left)


def _wait(client, path, body, headers, until, progress):
    status, got, data = client.transport.call("POST", path, body, headers, timeout=max(1.0, until - time.monotonic()))
    answer = json.loads(data)
    pause, kernels, waits = 0.01, [], True
    while status == 202:
        if time.monotonic() > until:
            raise Unavailable("the model is not compiled yet; the service goes on")
        if progress or not waits:  # another process of the fleet has it, or an older service answers at once
            time.sleep(pause)
            pause = min(0.2, pause * 1.5)
        left = min(60, max(1, int(until - time.monotonic())))
        headers = {} if progress else {"Prefer": f"wait={left}"}
        _, told, data = client.transport.call("GET", "/v1/graphs/" + answer["key"], headers=headers, timeout=left + 10)
        now, waits = json.loads(data), "Preference-Applied" in told
        if progress:
            progress(now["done"], now["total"])
        if now["state"] == "failed":
            raise ServiceError(now["problem"].get("status", 500), now["problem"])
        if now["state"] == "cancelled":
            raise Error("somebody cancelled the compile of this model")
        if now["state"] == "succeeded":
            kernels = now["kernels"]
            _, _, data = client.transport.call("GET", "/v1/kernels/" + answer["key"], headers={"Accept": "application/json"})
            answer = json.loads(data)
            break
    if not kernels:
        kernels = [{"key": k["key"], "cache_status": got.get("Cache-Status", "")} for k in answer["manifest"]["kernels"]]
    return dict(answer, kernels=kernels)


def folder_of(path):
    return os.path.dirname(os.path.abspath(os.fspath(path)))


def _reader(folder):
    """Bytes of files in the model's folder or below it; a name that leads elsewhere, also through links, is refused."""
    root, files = os.path.realpath(folder), {}

    def part(location, offset, length):
        path = os.path.realpath(os.path.join(root, location))
        if os.path.isabs(location) or not path.startswith(os.path.join(root, "")):
            raise Unsupported(f"the model keeps weights in {location!r}, which is outside of its folder")
        if path not in files:
            try:
                if os.path.exists(path) and not os.path.isfile(path):  # a FIFO would wait for whoever writes it
                    raise ValueError("it is no file")
                with open(path, "rb") as f:
                    files[path] = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
            except (OSError, ValueError) as e:
                raise Unsupported(f"the model keeps weights in {location!r}, which cannot be read: {e}") from None
        whole = files[path]
        end = len(whole) if length is None else offset + length
        if offset > len(whole) or end > len(whole):
            raise Unsupported(f"a weight is at {offset} of {location!r}, {length} bytes long; the file has {len(whole)}")
        return whole[offset:end]
    return part


def read_onnx(path):
    with open(os.fspath(path), "rb") as f:
        return f.read()
