"""How every kernel is compiled, stated once.

A sum over floats becomes SIMD only if the compiler may reorder it (`reassoc`)
and fuse multiply with add (`contract`). NaN, infinity and signed zero keep
their meaning. Without the GIL, the trainer runs kernels from several threads.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

__all__ = ["FAST_MATH", "kernel"]

FAST_MATH = {"reassoc", "contract"}

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile on first call, keep the machine code on disk."""
    compiled = numba.njit(cache=True, nogil=True, fastmath=FAST_MATH, error_model="numpy")
    return cast(Function, compiled(function))
