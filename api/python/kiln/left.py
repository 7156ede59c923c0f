"""Nodes of a model that Kiln left to its caller (partial=True): run by the client's own functions, by onnxruntime, or by onnx's reference evaluator."""
import ctypes
import sys
import warnings

from . import arrays, wire
from .errors import Fallback, Unsupported

_NUMPY = {"f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8",
          "bool": "?"}
_ELEM = {"f4": 1, "u1": 2, "i1": 3, "u2": 4, "i2": 5, "i4": 6, "i8": 7, "b1": 9, "f2": 10, "f8": 11, "u4": 12, "u8": 13}  # TensorProto.DataType

CALLER = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p))


def _says(call):
    return f"{call['domain'] + '.' if call['domain'] else ''}{call['op']} ({call['node']})"


def _numpy():
    try:
        import numpy
        return numpy
    except ImportError:
        raise Unsupported("nodes that are left to the caller need NumPy here") from None


def _type(x):
    """TypeProto of a value as a runtime hands it on: an array, or a list of arrays."""
    if isinstance(x, list):
        if not x:
            raise Unsupported("an empty sequence has no type here")
        return wire.field(4, wire.field(1, _type(x[0])))
    code = getattr(getattr(x, "dtype", None), "str", "??")[1:]
    if code in _ELEM:
        return wire.field(1, wire.number(1, _ELEM[code]))
    if str(getattr(x, "dtype", "")) == "object" or code[:1] == "U":
        return wire.field(1, wire.number(1, 8))
    raise Unsupported(f"a value of type {type(x).__name__} cannot be handed to another runtime")


def _onnxruntime(body):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(body, options, providers=["CPUExecutionProvider"])


def _reference(body):
    import onnx.reference
    return onnx.reference.ReferenceEvaluator(onnx.load_from_string(body))


_RUNTIMES = (("onnxruntime", _onnxruntime), ("onnx.reference", _reference))


class Left:
    """What runs the calls of a plan. functions: {"Op" or "domain.Op": a function of arrays that gives an array or a list of them}."""

    def __init__(self, calls, body, functions=None):
        self.calls, self.functions, self.runtimes = calls, functions or {}, {}
        self.numpy = _numpy()
        for call in calls:
            for v in call["inputs"] + call["outputs"]:
                if not v.get("held") and v["dtype"] not in _NUMPY:
                    raise Unsupported(f"{_says(call)} takes or gives {v['dtype']}, which NumPy lacks")
        others = [i for i, c in enumerate(calls) if self._own(c) is None]
        self.name = "functions of the client"
        if others:
            self._open(others, body)
        warnings.warn(f"kiln: left to {self.name}: " + "; ".join(f"{_says(c)}, because {c['why']}" for c in calls), Fallback, stacklevel=5)

    def _own(self, call):
        name = f"{call['domain']}.{call['op']}" if call["domain"] else call["op"]
        return self.functions.get(name)

    def _open(self, others, body):
        names = ", ".join(_says(self.calls[i]) for i in others)
        if body is None:
            raise Unsupported(f"a graph as JSON has no other runtime: name functions for {names}")
        self.parts = wire.Parts(body)
        why = []
        for name, make in _RUNTIMES:
            try:
                __import__(name)
            except ImportError:
                why.append(f"{name} is not installed")
                continue
            self.name, self.make = name, make
            return
        raise Unsupported(f"nobody runs {names}, which {'is' if len(others) == 1 else 'are'} left to the caller: {'; '.join(why)}; "
                          "functions of your own can be named (left={\"Op\": f})")

    def _model(self, i, values):
        """The node alone as a model, for values as they are."""
        call = self.calls[i]
        inputs = [wire.field(11, wire.field(1, v["name"].encode()) + wire.field(2, _type(x))) for v, x in zip(call["inputs"], values)]
        outputs = [wire.field(12, wire.field(1, v["name"].encode())) for v in call["outputs"]]
        node = self.parts.node(call["node"])
        graph = wire.field(1, node) + wire.field(2, b"left") + b"".join(inputs + outputs)
        return self.parts.head + wire.field(7, graph)

    def _by_runtime(self, i, values):
        call = self.calls[i]
        key = (i, tuple(_type(x) for x in values))
        session = self.runtimes.get(key)
        if session is None:
            session = self.runtimes[key] = self.make(self._model(i, values))
        return session.run([v["name"] for v in call["outputs"]], {v["name"]: x for v, x in zip(call["inputs"], values)})

    def _array(self, v, address):
        dtype = self.numpy.dtype(_NUMPY[v["dtype"]])
        if not v["bytes"]:
            return self.numpy.empty(v["shape"], dtype)
        raw = (ctypes.c_char * v["bytes"]).from_address(address)
        return self.numpy.frombuffer(raw, dtype).reshape(v["shape"])

    def run(self, i, inputs, outputs, held):
        """Call i: reads and writes at these addresses; held: values without a static shape, by name."""
        call = self.calls[i]
        values = [held[v["name"]] if v.get("held") else self._array(v, inputs[k]) for k, v in enumerate(call["inputs"])]
        own = self._own(call)
        got = own(*values) if own else self._by_runtime(i, values)
        got = list(got) if isinstance(got, (list, tuple)) else [got]
        if len(got) != len(call["outputs"]):
            raise Unsupported(f"{_says(call)} gave {len(got)} values where the model has {len(call['outputs'])}")
        for k, (v, x) in enumerate(zip(call["outputs"], got)):
            if v.get("held"):
                held[v["name"]] = x
                continue
            x = self.numpy.asarray(x.detach().numpy() if arrays.is_torch(x) else x)
            to = self._array(v, outputs[k])
            if x.dtype != to.dtype or x.shape != to.shape:
                raise Unsupported(f"{_says(call)} gave {x.dtype}{list(x.shape)} for {v['name']}, which the model says is {v['dtype']}{v['shape']}")
            self.numpy.copyto(to, x)


class Run:
    """One run of a plan: the callback that its function is given, what the caller holds meanwhile, and what went wrong."""

    def __init__(self, left):
        self.held, self.wrong = {}, None

        def called(_, i, inputs, outputs):
            try:
                left.run(i, inputs, outputs, self.held)
                return 0
            except BaseException:  # no exception crosses the compiled function; it is raised behind it
                self.wrong = sys.exc_info()[1]
                return 1
        self.callback = CALLER(called)
        self.address = ctypes.cast(self.callback, ctypes.c_void_p).value
