"""How every kernel is compiled, stated once.

A sum over floats becomes SIMD only if the compiler may reorder it (`reassoc`)
and fuse multiply with add (`contract`). NaN, infinity and signed zero keep
their meaning. Without the GIL, the trainer runs kernels from several threads.

Kernels that serve allocate nothing and count no references. numba counts them for every array
that a part is given, by an atomic instruction, and on one cache line for all threads: coding a
photograph took a third longer on one core.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import numba
from numba.core import ir
from numba.core.compiler import Compiler

from service.engine.kernel_cache import KernelCache

__all__ = ["FAST_MATH", "allocating_kernel", "kernel", "part"]

FAST_MATH = {"reassoc", "contract"}

Function = TypeVar("Function", bound=Callable[..., Any])


class _KernelCompiler(Compiler):
    """numba's compiler, which takes two thirds of its own time for the largest kernels.

    Before it puts a part into a kernel, numba makes two deep copies of it, block by block, and
    with every block one of the scope, which holds all variables of the part.
    """

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        """Compile a kernel, while numba's lock keeps other threads from compiling."""
        with _shared_scopes():
            return super().compile_extra(func)


@contextlib.contextmanager
def _shared_scopes() -> Iterator[None]:
    """Copies of a part keep the scope of what they were copied from, which nothing else uses."""
    scope: Any = ir.Scope
    scope.__deepcopy__ = lambda self, _: self
    try:
        yield
    finally:
        del scope.__deepcopy__


def kernel(function: Function) -> Function:
    """Compile on first call, keep the machine code on disk.

    All arrays are the caller's: numba refuses to compile a kernel that makes one.
    """
    return _compiled(function, allocates=False)


def allocating_kernel(function: Function) -> Function:
    """A kernel that makes arrays of its own."""
    return _compiled(function, allocates=True)


def _compiled(function: Function, *, allocates: bool) -> Function:
    options: dict[str, Any] = {"nogil": True, "fastmath": FAST_MATH, "error_model": "numpy"}
    # A flag that numba has for its own use; a test looks at what becomes of it.
    options["_nrt"] = allocates
    compiled: Any = numba.njit(pipeline_class=_KernelCompiler, **options)(function)
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
