"""Files of NumPy's format with f32 elements, for tests that do without NumPy."""
import array, ast


def write(path, values, shape):
    head = str({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + array.array("f", values).tobytes())


def read(path):
    """Shape and elements."""
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[8:10], "little")
    return ast.literal_eval(data[10:10 + n].decode())["shape"], list(array.array("f", data[10 + n:]))
