"""Shared objects: into this process, from bytes whose digest was checked."""
import ctypes
import itertools
import os
import tempfile

from .errors import Unsupported


class Pool(ctypes.Structure):
    """struct kiln_pool of the kernel ABI."""
    TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
    FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    _fields_ = [("ctx", ctypes.c_void_p), ("nthreads", ctypes.c_int32), ("parallel_for", FOR)]


def cpu_features():
    """The features of this machine's CPU in /proc/cpuinfo's words; None where that cannot be read."""
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith(("flags", "Features")):
                    return {word.replace("_", "") for word in line.partition(":")[2].split()}
    except OSError:
        pass
    return None


def check_features(wanted):
    have = cpu_features()
    if have is None:
        return
    missing = [f for f in wanted if f.replace("_", "") not in have]
    if missing:
        raise Unsupported(f"this machine's CPU lacks {', '.join(missing)}; compile for its own target")


_loaded = itertools.count(1)


def _path(fd):
    """The loader takes a path that it has seen before for the library that it found there, and descriptors are used again: so each path is
    spelled in its own way, the bits of a counter as "/" and "/."."""
    return "/proc/self/fd" + "".join("/." if bit == "1" else "/" for bit in bin(next(_loaded))[2:]) + f"/{fd}"


def load(data, name="kernel"):
    """ctypes.CDLL of the bytes. They go to the loader through a file without a name, so that nothing can replace them once checked."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        path = _path(fd)
    else:
        fd, path = tempfile.mkstemp(suffix=".so")
    try:
        with os.fdopen(os.dup(fd), "wb") as f:
            f.write(data)
        return ctypes.CDLL(path, mode=os.RTLD_NOW | getattr(ctypes, "RTLD_LOCAL", 0))
    except OSError as e:
        raise Unsupported(f"the shared object cannot be loaded: {e}") from None
    finally:
        os.close(fd)
        if not path.startswith("/proc/"):
            os.unlink(path)
