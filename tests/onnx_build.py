"""ONNX models for tests, written without the onnx package: a model is built of what wire.py of the client writes."""
import os, struct, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api", "python"))
from kiln.wire import field, number

DTYPES = {"f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11, "u32": 12, "u64": 13}


def value(name, dtype, shape=None):
    """ValueInfoProto; extents that are texts are names."""
    dims = b"".join(field(1, field(2, d.encode()) if isinstance(d, str) else number(1, d)) for d in shape or ())
    tensor = number(1, DTYPES[dtype]) + (field(2, dims) if shape is not None else b"")
    return field(1, name.encode()) + field(2, field(1, tensor))


def attribute(name, x):
    """AttributeProto of an integer, a float, a text, a list of integers or floats or the bytes of a graph."""
    head = field(1, name.encode())
    if isinstance(x, int):
        return head + number(3, x & (1 << 64) - 1) + number(20, 2)
    if isinstance(x, float):
        return head + b"\x15" + struct.pack("<f", x) + number(20, 1)
    if isinstance(x, str):
        return head + field(4, x.encode()) + number(20, 3)
    if isinstance(x, bytes):
        return head + field(6, x) + number(20, 5)
    if x and isinstance(x[0], float):
        return head + field(7, struct.pack(f"<{len(x)}f", *x)) + number(20, 6)
    return head + b"".join(number(8, i & (1 << 64) - 1) for i in x) + number(20, 7)


def node(op, inputs, outputs, domain="", name="", **attrs):
    text = b"".join(field(1, i.encode()) for i in inputs) + b"".join(field(2, o.encode()) for o in outputs)
    text += field(3, name.encode()) + field(4, op.encode()) + b"".join(field(5, attribute(k, x)) for k, x in attrs.items())
    return text + (field(7, domain.encode()) if domain else b"")


def constant(name, dtype, shape, values):
    code = {"f32": "f", "i64": "q", "i32": "i", "f64": "d", "u8": "B", "i8": "b", "bool": "?"}[dtype]
    raw = struct.pack(f"<{len(values)}{code}", *values)
    return b"".join(number(1, d) for d in shape) + number(2, DTYPES[dtype]) + field(8, name.encode()) + field(9, raw)


def graph(nodes, inputs, outputs, constants=(), infos=()):
    parts = [(1, nodes), (5, constants), (11, inputs), (12, outputs), (13, infos)]
    return field(2, b"test") + b"".join(field(n, x) for n, items in parts for x in items)


def opset(domain, version):
    return (field(1, domain.encode()) if domain else b"") + number(2, version)


def function(name, domain, inputs, outputs, nodes, opsets=(("", 17),), attrs=(), defaults=None):
    """FunctionProto. defaults: attributes with the values they have where a node gives none."""
    text = field(1, name.encode()) + b"".join(field(4, i.encode()) for i in inputs) + b"".join(field(5, o.encode()) for o in outputs)
    text += b"".join(field(6, a.encode()) for a in attrs) + b"".join(field(11, attribute(k, x)) for k, x in (defaults or {}).items())
    return text + b"".join(field(7, n) for n in nodes) + b"".join(field(9, opset(*o)) for o in opsets) + field(10, domain.encode())


def model(graph_bytes, opsets=(("", 17),), functions=()):
    return (number(1, 8) + field(7, graph_bytes) + b"".join(field(8, opset(*o)) for o in opsets) + b"".join(field(25, f) for f in functions))
