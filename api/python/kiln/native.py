"""Threads for kernels, from libkiln-client (the C client): kernels take a parallel_for, and one in Python would be slow."""
import ctypes
import ctypes.util
import os

from .errors import Unsupported
from .load import Pool as _Raw


class Pool:
    """A fork-join pool. library: path of libkiln-client.so; default KILN_CLIENT_LIB, else the system's."""

    def __init__(self, threads, library=None):
        path = library or os.environ.get("KILN_CLIENT_LIB") or ctypes.util.find_library("kiln-client")
        if not path:
            raise Unsupported("libkiln-client is not found; name it with KILN_CLIENT_LIB or run without a pool")
        self.library = ctypes.CDLL(path)
        self.library.kiln_pool_open.restype = ctypes.POINTER(_Raw)
        self.library.kiln_pool_open.argtypes = [ctypes.c_int]
        self.library.kiln_pool_close.argtypes = [ctypes.POINTER(_Raw)]
        self.raw = self.library.kiln_pool_open(threads)
        if not self.raw:
            raise Unsupported(f"{threads} threads cannot be had")

    def close(self):
        if self.raw:
            self.library.kiln_pool_close(self.raw)
            self.raw = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
