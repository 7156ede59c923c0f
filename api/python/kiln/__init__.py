"""Client of Kiln, a compilation service for tensor kernels. Needs nothing but the standard library.

    import kiln
    matmul = kiln.compile("c[M,N] +=! a[M,K] * b[K,N]", a=x, b=y)   # x, y: arrays, or types such as "f32[512,512]"
    z = matmul(x, y)
"""
from .client import Client, compile, default_client
from .errors import Error, DigestError, Fallback, ServiceError, Unavailable, Unsupported
from .kernel import Kernel

__version__ = "0.1.0"
__all__ = ["Client", "DigestError", "Error", "Fallback", "Kernel", "ServiceError", "Unavailable", "Unsupported", "compile", "default_client"]
