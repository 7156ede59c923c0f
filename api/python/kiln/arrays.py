"""Arrays of whatever library: NumPy arrays, PyTorch tensors and plain buffers by their address, dtype and shape."""
import array
import sys

from .errors import Unsupported

BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "bool": 1, "f8e4m3": 1, "f8e5m2": 1}
_NUMPY = {"f8": "f64", "f4": "f32", "f2": "f16", "i8": "i64", "i4": "i32", "i2": "i16", "i1": "i8", "u1": "u8", "b1": "bool"}
_TORCH = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16",
          "int8": "i8", "uint8": "u8", "bool": "bool", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}
_BUFFER = {"d": "f64", "f": "f32", "e": "f16", "q": "i64", "l": "i64", "i": "i32", "h": "i16", "b": "i8", "B": "u8", "?": "bool"}
_CODE = {"f64": "d", "f32": "f", "i64": "q", "i32": "i", "i16": "h", "i8": "b", "u8": "B", "bool": "B", "f16": "H", "bf16": "H", "f8e4m3": "B", "f8e5m2": "B"}


def _contiguous(shape, strides, item):
    step = item
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def dtype_of_torch(x):
    return _TORCH.get(str(x.dtype).split(".")[-1], str(x.dtype))


def dtype_of_text(code):
    """Of an array interface's typestr."""
    dtype = _NUMPY.get(code[1:]) if code[0] in ("|", "=", "<" if sys.byteorder == "little" else ">") else None
    if dtype is None:
        raise Unsupported(f"no dtype of a kernel is the array's {code}")
    return dtype


class View:
    """Address, dtype and shape of an array; holds on to what owns the memory."""
    __slots__ = ("owner", "address", "dtype", "shape", "writable")

    def __init__(self, owner, address, dtype, shape, writable):
        self.owner, self.address, self.dtype, self.shape, self.writable = owner, address, dtype, tuple(shape), writable


def is_torch(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def view(x):
    """A View of x, or Unsupported: only contiguous row-major arrays in this process's memory can be passed."""
    if is_torch(x):
        if x.device.type != "cpu":
            raise Unsupported(f"the tensor lies on {x.device}; only tensors in main memory can be passed")
        if not x.is_contiguous():
            raise Unsupported("the tensor is not contiguous; x.contiguous() is")
        if x.is_conj() or x.is_neg():
            raise Unsupported("the tensor has a pending conjugation or sign; x.resolve_conj() and x.resolve_neg() make plain ones")
        return View(x, x.data_ptr(), dtype_of_torch(x), x.shape, True)
    face = getattr(x, "__array_interface__", None)
    if face is not None:
        dtype = dtype_of_text(face["typestr"])
        if face.get("strides") is not None and not _contiguous(face["shape"], face["strides"], BYTES[dtype]):
            raise Unsupported("the array is not row-major; numpy.ascontiguousarray(x) is")
        return View(x, face["data"][0], dtype, face["shape"], not face["data"][1])
    try:
        m = memoryview(x)
    except TypeError:
        raise Unsupported(f"{type(x).__name__} is no array: NumPy arrays, PyTorch tensors and buffers are") from None
    if not m.c_contiguous or m.format.lstrip("@=") not in _BUFFER:
        raise Unsupported(f"a buffer of format {m.format!r} cannot be passed")
    import ctypes
    if m.readonly:
        raise Unsupported("a read-only buffer has no address here; bytearray(x) has")
    address = ctypes.addressof(ctypes.c_char.from_buffer(m)) if m.nbytes else 0
    return View(m, address, _BUFFER[m.format.lstrip("@=")], m.shape, True)


def empty(like, dtype, shape):
    """An array of the library that `like` is of."""
    if is_torch(like):
        torch = sys.modules["torch"]
        names = {v: k for k, v in _TORCH.items()}
        return torch.empty(tuple(shape), dtype=getattr(torch, names[dtype]), device=like.device)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(like, numpy.ndarray) and dtype in _NUMPY.values():
        return numpy.empty(tuple(shape), {v: k for k, v in _NUMPY.items()}[dtype])
    count = 1
    for extent in shape:
        count *= extent
    flat = memoryview(array.array(_CODE[dtype], bytes(count * BYTES[dtype])))
    return flat.cast("B").cast(_CODE[dtype], list(shape)) if shape else flat


def like(other, x):
    """An array of another library (or a list of them) as one of the library that `other` is of, where it can be."""
    if isinstance(x, list):
        return [like(other, e) for e in x]
    return sys.modules["torch"].from_numpy(x) if is_torch(other) and hasattr(x, "__array_interface__") else x


def type_text(x):
    """"f32[4,4]" of an array, a (dtype, shape) pair or such a text."""
    if isinstance(x, str):
        return x
    if isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], str):
        return f"{x[0]}[{','.join(str(n) for n in x[1])}]"
    v = view(x)
    return f"{v.dtype}[{','.join(str(n) for n in v.shape)}]"


def parse_type(text):
    """("f32", [4, 4]) of "f32[4,4]" or "f32:4x4"."""
    text = text.strip()
    if "[" in text:
        dtype, _, rest = text.partition("[")
        extents = [e for e in rest.rstrip("] ").split(",") if e.strip()]
    else:
        dtype, _, rest = text.partition(":")
        extents = [e for e in rest.split("x") if e.strip()]
    try:
        return dtype.strip(), [int(e) for e in extents]
    except ValueError:
        raise Unsupported(f"{text!r} is no type: \"f32[512,512]\" is") from None
