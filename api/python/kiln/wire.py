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


def slim(body, digest):
    """(a model without the bytes of its large initializers, which it names by their digests; {digest: bytes}). Small models stay as they are."""
    given = {}

    def without(data, path):
        out = []
        for n, x, begin, end in _extents(data):
            if n != path[0] or not isinstance(x, memoryview) or len(x) < WEIGHT_FROM:
                out.append(data[begin:end])
            elif len(path) > 1:
                out.append(field(n, without(x, path[1:])))
            else:
                name = digest(x)
                given[name] = x
                out.append(field(13, field(1, b"location") + field(2, b"sha256:" + name.encode())) + number(14, 1))
        return b"".join(out)
    if len(body) < MODEL_FROM:
        return body, given
    try:
        return without(memoryview(body), (7, 5, 9)), given  # ModelProto.graph, its initializers, their raw_data
    except IndexError:
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
