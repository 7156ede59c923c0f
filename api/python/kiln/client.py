"""Asking the service: one operator or expression to one kernel."""
import json
import os
import threading
import time

from . import arrays
from .cache import Cache, sha256
from .errors import DigestError, ServiceError, Unavailable
from .http import Transport
from .kernel import Kernel


class Client:
    """url: http://HOST:PORT or unix:/PATH; default KILN_URL, else http://127.0.0.1:8787. token: KILN_KEY.
    cache: a folder; default KILN_CACHE, else ~/.cache/kiln. timeout: seconds one answer may take."""

    def __init__(self, url=None, token=None, cache=None, timeout=90.0):
        self.transport = Transport(url or os.environ.get("KILN_URL") or "http://127.0.0.1:8787", timeout, token or os.environ.get("KILN_KEY"))
        self.cache = Cache(cache)
        self.asked, self.lock = {}, threading.Lock()

    # ---- requests ----
    def request(self, expr=None, op=None, attrs=None, inputs=None, target=None, grad=None, quality=None, trace=None, **types):
        """The body of POST /v1/compile. types: inputs of an expression by name, "f32[4,4]" or, for weights, "f32[4,4] const"; inputs: of
        an operator, in order."""
        if (expr is None) == (op is None):
            raise TypeError("give an expression or op=, one of them")
        body = {"expr": expr} if op is None else {"op": {"name": op, "attrs": attrs} if attrs else op}
        if inputs is None:
            inputs = types
        pairs = inputs.items() if isinstance(inputs, dict) else [(f"in{i}", x) for i, x in enumerate(inputs)]
        body["inputs"] = []
        for name, x in pairs:
            if x is None:
                body["inputs"].append(None)
                continue
            text = arrays.type_text(x)
            plain = text.removesuffix("const").rstrip(" :")
            dtype, shape = arrays.parse_type(plain)
            body["inputs"].append({"name": name, "dtype": dtype, "shape": shape, **({"constant": True} if plain != text else {})})
        for name, value in (("target", target), ("grad", grad), ("quality", quality), ("trace", trace)):
            if value is not None:
                body[name] = value
        return body

    def compile(self, expr=None, **request):
        """A Kernel. Answered from the local cache when the service says that nothing changed, or does not answer."""
        return self.compile_request(self.request(expr, **request))

    def compile_request(self, body, wait=None):
        """body: of POST /v1/compile. wait: seconds until a compile is given up (Unavailable); default the client's timeout."""
        digest = sha256(json.dumps([body, self.transport.url], sort_keys=True).encode())
        with self.lock:
            known = self.asked.get(digest)
        if known is not None:
            return known
        etag, kept = self.cache.answer(digest)
        stale = False
        try:
            answer, tag = self._post(body, etag, wait)
            if answer is None:
                answer = kept
            else:
                self.cache.put_answer(digest, tag, answer)
        except Unavailable:
            if kept is None:
                raise
            answer, stale = kept, True
        answer = dict(answer, order=[i["name"] for i in body["inputs"] if i])
        kernel = Kernel(self, answer, stale)
        if not stale:
            with self.lock:
                self.asked[digest] = kernel
        return kernel

    def _post(self, body, etag, wait=None):
        """(answer, etag), or (None, etag) when the answer with this etag still holds."""
        wait = self.transport.timeout if wait is None else wait
        until = time.monotonic() + wait
        text = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if etag:
            headers["If-None-Match"] = etag
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise Unavailable(f"no kernel within {wait:g} s; the service goes on compiling it")
            headers["Prefer"] = f"wait={max(0, min(60, int(left)))}"
            try:
                status, got, data = self.transport.call("POST", "/v1/compile", text, headers, timeout=left + 2)
            except ServiceError as e:
                if e.status != 503 or until - time.monotonic() < 1:
                    raise
                time.sleep(0.5)  # a full queue: the service asks for another try
                continue
            if status == 304:
                return None, etag
            if status == 200:
                return json.loads(data), got.get("ETag", "")
            time.sleep(0.1 if left > 1 else 0.02)

    def kernel(self, key):
        """The best known version of a kernel by its key; its inputs have the kernel's own names and order."""
        digest = sha256(f"{key} {self.transport.url}".encode())
        etag, kept = self.cache.answer(digest)
        headers = {"Accept": "application/json"}
        if etag:
            headers["If-None-Match"] = etag
        try:
            status, got, data = self.transport.call("GET", "/v1/kernels/" + key, headers=headers)
        except Unavailable:
            if kept is None:
                raise
            return Kernel(self, kept, stale=True)
        if status != 304:
            kept = json.loads(data)
            self.cache.put_answer(digest, got.get("ETag", ""), kept)
        return Kernel(self, kept)

    def compile_onnx(self, model, **how):
        """A Model of an ONNX file: its path or bytes. target, dims={"batch": 1} or {"x": (1, 3, 224, 224)}, bind={"sr": 16000}, wait (seconds),
        progress(done, total). partial=True: nodes that Kiln cannot compile are run here, by functions of yours (left={"Op": f, "domain.Op": g}),
        else by onnxruntime or onnx's reference evaluator where one is installed, with a warning `Fallback` that names them and why."""
        from .graph import compile_model, folder_of, read_onnx
        if isinstance(model, (bytes, bytearray)):
            return compile_model(self, bytes(model), True, **how)
        return compile_model(self, read_onnx(model), True, **{"folder": folder_of(model), **how})

    def onnx(self, model, **how):
        """An ONNX file, its path or bytes, as a function of arrays that is compiled for the shapes it is called with. Members as compile_onnx."""
        from .graph import folder_of, read_onnx
        from .onnx import Onnx
        if isinstance(model, (bytes, bytearray)):
            return Onnx(self, model, **how)
        return Onnx(self, read_onnx(model), **{"folder": folder_of(model), **how})

    def compile_graph(self, request, **how):
        """A Model of a request with a member "graph" (docs/graphs.md)."""
        from .graph import compile_model
        return compile_model(self, json.dumps(request, sort_keys=True).encode(), False, **how)

    # ---- bytes ----
    def blob(self, digest):
        """Bytes by SHA-256, from the local cache or the service; checked either way."""
        data = self.cache.blob(digest)
        if data is None:
            status, headers, data = self.transport.call("GET", "/v1/blobs/sha256/" + digest)
            if sha256(data) != digest:
                raise DigestError(f"the service sent bytes with SHA-256 {sha256(data)} where {digest} was promised")
            self.cache.put_blob(digest, data)
        return data

    def close(self):
        """Closes this thread's connection; the next request makes another."""
        self.transport.close()

    def targets(self):
        return json.loads(self.transport.call("GET", "/v1/targets")[2])

    def operators(self):
        return json.loads(self.transport.call("GET", "/v1/operators")[2])


_default, _lock = None, threading.Lock()


def default_client():
    global _default
    with _lock:
        if _default is None:
            _default = Client()
        return _default


def compile(expr=None, **request):
    """Client.compile of the default client (KILN_URL)."""
    return default_client().compile(expr, **request)
