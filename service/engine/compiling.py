"""How every kernel is compiled, stated once.

A sum over floats becomes SIMD only if the compiler may reorder it (`reassoc`)
and fuse multiply with add (`contract`). NaN, infinity and signed zero keep
their meaning. Without the GIL, the trainer runs kernels from several threads.
"""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from service.engine.kernel_cache import KernelCache

__all__ = ["FAST_MATH", "kernel", "part"]

FAST_MATH = {"reassoc", "contract"}

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile on first call, keep the machine code on disk."""
    compiled: Any = numba.njit(nogil=True, fastmath=FAST_MATH, error_model="numpy")(function)
    with contextlib.suppress(OSError):  # without its source, it is compiled at every start
        compiled._cache = KernelCache(function)  # noqa: SLF001
    return cast("Function", compiled)


def part(function: Function) -> Function:
    """A piece of kernels, compiled into each of them.

    A kernel that calls another one runs the other's own machine code right after
    compiling, but a copy within its own when loaded from the cache. The two round
    differently, so the first start of a service gave other last digits than the second.
    """
    return cast("Function", numba.njit(inline="always")(function))
