"""Protobuf's wire format, as much as an ONNX file taken apart and put together again needs."""


def fields(data):
    """(number, value) of a message: integers, or bytes. IndexError, where it is cut short."""
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
        tag, at = varint(at)
        if tag & 7 == 0:
            x, at = varint(at)
            yield tag >> 3, x
        elif tag & 7 == 2:
            n, at = varint(at)
            yield tag >> 3, data[at:at + n]
            at += n
        else:
            at += 8 if tag & 7 == 1 else 4


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


class Parts:
    """Of a model: `head`, everything that is not its graph and that its nodes need (IR version 1, opset imports 8, functions 25), and its nodes."""

    def __init__(self, body):
        body = memoryview(body)
        self.head = b"".join(number(1, x) for x in every(body, 1)) + b"".join(field(n, x) for n in (8, 25) for x in every(body, n))
        self.nodes = list(every(body, 7, 1))

    def node(self, place):
        """Bytes of the node at "/graph/node/12"."""
        return bytes(self.nodes[int(place.rsplit("/", 1)[1])])
