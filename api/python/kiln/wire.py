"""Protobuf's wire format, as much as an ONNX file taken apart and put together again needs."""


MODEL_FROM, WEIGHT_FROM = 64 << 20, 1 << 20  # bytes of a model, and of a weight of it, from which the latter is not sent


def _extents(data):
    """(number, value, where it begins, where it ends) of a message's fields; None for numbers of fixed width. IndexError, where it is cut short."""
    def varint(at):
        x = shift = 0
        while True:
            b = data[at]
            x |= (b & 127) << shift
            shift += 7
            at += 1
            if b < 128:
                return x, at
    at = 0
    while at < len(data):
        begin, x = at, None
        tag, at = varint(at)
        if tag & 7 == 0:
            x, at = varint(at)
        elif tag & 7 == 2:
            n, at = varint(at)
            x = data[at:at + n]
            at += n
        else:
            at += 8 if tag & 7 == 1 else 4
        yield tag >> 3, x, begin, at


def fields(data):
    """(number, value) of a message: integers, or bytes. IndexError, where it is cut short."""
    return ((n, x) for n, x, _, _ in _extents(data) if x is not None)


def every(data, *path):
    """Every value of a field that lies along a path of field numbers."""
    for n, value in fields(data):
        if n == path[0]:
            if len(path) == 1:
                yield value
            else:
                yield from every(value, *path[1:])


def _varint(x):
    out = bytearray()
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    out.append(x)
    return bytes(out)


def number(n, x):
    return _varint(n << 3) + _varint(x)


def field(n, data):
    return _varint(n << 3 | 2) + _varint(len(data)) + bytes(data)


def _elsewhere(tensor):
    """(location, offset, length or None) of a TensorProto whose data are in a file; None: they are not, or are named by their digest already."""
    entries, external = {}, False
    for n, x in fields(tensor):
        if n == 14:
            external = x == 1
        elif n == 13:
            entry = {k: bytes(v) for k, v in fields(x) if isinstance(v, memoryview)}
            entries[entry.get(1, b"")] = entry.get(2, b"")
    location = entries.get(b"location", b"").decode("utf-8", "replace")
    if not external or not location or location.startswith("sha256:"):
        return None
    offset, length = (entries.get(k, b"") for k in (b"offset", b"length"))
    if not all(x.isdigit() or not x for x in (offset, length)):
        return None  # the service says what is wrong
    return location, int(offset or b"0"), int(length) if length else None


def slim(body, digest, part=None):
    """(a model without the bytes of its large initializers, which it names by their digests; {digest: bytes}). Small models stay as they are.
    part(location, offset, length): the bytes of external data; without it they are left as they are."""
    given = {}

    def named(x):
        name = digest(x)
        given[name] = x
        return field(13, field(1, b"location") + field(2, b"sha256:" + name.encode())) + number(14, 1)

    def inside(tensor, at):
        x = part(*at)
        rest = b"".join(bytes(tensor[begin:end]) for n, _, begin, end in _extents(tensor) if n not in (9, 13, 14))
        return rest + (field(9, x) if len(x) < WEIGHT_FROM or packed(tensor) else named(x))

    def packed(tensor):
        """Of 4 bits: its bytes stay, they are taken apart when the model is read."""
        return any(n == 2 and x in (21, 22) for n, x, _, _ in _extents(tensor))

    def of_node(data):
        """A node whose attributes have graphs, or a tensor (of Constant), that keep data elsewhere."""
        return b"".join(field(n, of_attribute(x)) if n == 5 and isinstance(x, memoryview) else bytes(data[begin:end]) for n, x, begin, end in _extents(data))

    def of_attribute(data):
        out = []
        for n, x, begin, end in _extents(data):
            at = _elsewhere(x) if n == 5 and isinstance(x, memoryview) else None
            if at:
                out.append(field(n, inside(x, at)))
            else:
                out.append(field(n, without(x, (5, 9))) if n in (6, 11) and isinstance(x, memoryview) else bytes(data[begin:end]))
        return b"".join(out)

    def without(data, path):
        out = []
        for n, x, begin, end in _extents(data):
            ours = n == path[0] and isinstance(x, memoryview)
            at = _elsewhere(x) if ours and len(path) == 2 and part else None
            if at:
                out.append(field(n, inside(x, at)))
            elif part and len(path) == 2 and n == 1 and isinstance(x, memoryview) and b"location" in bytes(x):
                out.append(field(n, of_node(x)))
            elif not ours or (len(x) < WEIGHT_FROM and not (part and len(path) == 3)) or (len(path) == 2 and packed(x)):
                out.append(data[begin:end])
            else:
                out.append(field(n, without(x, path[1:])) if len(path) > 1 else named(x))
        return b"".join(out)
    if part and b"location" not in body:
        part = None
    if len(body) < MODEL_FROM and not part:
        return body, given
    try:
        return without(memoryview(body), (7, 5, 9)), given  # ModelProto.graph, its initializers, their raw_data
    except (IndexError, TypeError):
        return body, {}  # whoever reads it says what is wrong


class Parts:
    """Of a model: `head`, everything that is not its graph and that its nodes need (IR version 1, opset imports 8, functions 25), and its nodes."""

    def __init__(self, body):
        body = memoryview(body)
        self.head = b"".join(number(1, x) for x in every(body, 1)) + b"".join(field(n, x) for n in (8, 25) for x in every(body, n))
        self.nodes = list(every(body, 7, 1))

    def node(self, place):
        """Bytes of the node at "/graph/node/12"."""
        return bytes(self.nodes[int(place.rsplit("/", 1)[1])])
