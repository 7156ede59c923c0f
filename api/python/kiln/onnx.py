"""An ONNX file as a function of arrays: compiled for the shapes that it is called with, once for each."""
import threading
import warnings

from . import arrays, wire
from .errors import Fallback, ServiceError, Unsupported
from .graph import compile_model


class _Elsewhere:
    """A model that the service refuses, run by onnxruntime as the client has it."""
    manifest = None

    def __init__(self, body, bind, inputs, why):
        import onnxruntime
        import numpy
        self.inputs, self.why, self.numpy = inputs, why, numpy
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(body, options, providers=["CPUExecutionProvider"])
        types = {i.name: i.type for i in self.session.get_inputs()}
        self.bound = {n: numpy.array(x, {"tensor(int64)": "i8", "tensor(int32)": "i4", "tensor(double)": "f8"}.get(types[n], "f4")) for n, x in bind.items()}

    def __call__(self, *args, out=None, pool=None):
        outs = self.session.run(None, {**self.bound, **{n: self.numpy.asarray(x) for n, x in zip(self.inputs, args)}})
        for to, x in zip(out or [], outs):
            self.numpy.copyto(to, x)
        outs = list(out) if out is not None else outs
        return outs[0] if len(outs) == 1 else outs


def input_names(body):
    """Names of what a model is to be fed with, in order: ModelProto.graph (7), its inputs (11) that no initializer (5, name 8) has as its own."""
    body = memoryview(body)
    given = {bytes(n) for n in wire.every(body, 7, 5, 8)}
    return [bytes(n).decode() for n in wire.every(body, 7, 11, 1) if bytes(n) not in given]


class Onnx:
    """Callable with arrays in the order of the model's inputs, or by name. bind: inputs that are numbers known now ({"sr": 16000}).
    fallback: a model that the service refuses (an operator that Kiln lacks) runs in onnxruntime where that is installed, with a warning `Fallback` that
    says why; else the refusal is raised. partial, left: as Client.compile_onnx has them. `models`: what was compiled, by the shapes of its inputs."""

    def __init__(self, client, body, bind=None, fallback=False, **how):
        self.client, self.body, self.bind, self.fallback, self.how = client, bytes(body), dict(bind or {}), fallback, how
        try:
            self.inputs = [n for n in input_names(self.body) if n not in self.bind]
        except (IndexError, UnicodeDecodeError, TypeError):
            raise Unsupported("the bytes are no ONNX") from None
        self.models, self.lock = {}, threading.Lock()

    def compile(self, shapes):
        """A Model for {name: shape}."""
        key = tuple(tuple(shapes[n]) for n in self.inputs)
        with self.lock:
            model = self.models.get(key)
        if model is None:
            dims = {n: s for n, s in zip(self.inputs, key) if s}
            try:
                model = compile_model(self.client, self.body, True, dims=dims, bind=self.bind, **self.how)
            except ServiceError as e:
                if not self.fallback or e.status != 422:
                    raise
                model = self._elsewhere(e)
            with self.lock:
                model = self.models.setdefault(key, model)
        return model

    def _elsewhere(self, refusal):
        try:
            model = _Elsewhere(self.body, self.bind, self.inputs, str(refusal))
        except ImportError:
            raise refusal from None
        warnings.warn(f"kiln: the model runs in onnxruntime: {refusal}", Fallback, stacklevel=4)
        return model

    def __call__(self, *args, out=None, pool=None, **named):
        given = dict(zip(self.inputs, args), **named)
        if len(args) > len(self.inputs) or set(given) != set(self.inputs):
            raise TypeError(f"the model takes {len(self.inputs)} arrays: {', '.join(self.inputs)}")
        model = self.compile({n: arrays.view(x).shape for n, x in given.items()})
        return model(*[given[n] for n in model.inputs], out=out, pool=pool)
