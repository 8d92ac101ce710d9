"""How every kernel is compiled, stated once.

A sum over floats becomes SIMD only if the compiler may reorder it (`reassoc`)
and fuse multiply with add (`contract`). NaN, infinity and signed zero keep
their meaning. Without the GIL, the trainer runs kernels from several threads.
"""

import contextlib
import hashlib
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

__all__ = ["FAST_MATH", "kernel", "part"]

logger = logging.getLogger(__name__)

FAST_MATH = {"reassoc", "contract"}

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile on first call, keep the machine code on disk."""
    compiled: Any = numba.njit(nogil=True, fastmath=FAST_MATH, error_model="numpy")(function)
    with contextlib.suppress(RuntimeError):  # no folder for a cache: compile at every start
        compiled._cache = _TolerantCache(function)  # noqa: SLF001
    return cast("Function", compiled)


def part(function: Function) -> Function:
    """A piece of kernels, compiled into each of them.

    A kernel that calls another one runs the other's own machine code right after
    compiling, but a copy within its own when loaded from the cache. The two round
    differently, so the first start of a service gave other last digits than the second.
    """
    return cast("Function", numba.njit(inline="always")(function))


@cache
def _shared_stamp() -> str:
    """Digest of this file, for the flags, and of those whose parts other kernels use."""
    here = Path(__file__)
    files = (here, *sorted(here.parent.glob("kernels/*.py")))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


class _TolerantCache(FunctionCache):
    """numba's cache on disk, but a damaged file or a full disk costs time, not the start.

    numba's own (`cache=True`) raises whatever reading or writing raises, out of the
    first call of the kernel. It also looks for changes in a kernel's own file only;
    this one also in those that are compiled into kernels of other files.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            cache_path=self.cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=(self._impl.locator.get_source_stamp(), _shared_stamp()),
        )

    def load_overload(self, sig: object, target_context: object) -> object:
        """Machine code from disk, or None: compile."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001
            logger.warning(
                "kernel cache %s is damaged, compiling again: %r", self.cache_path, error
            )
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: object, data: object) -> None:
        """Keep machine code for the next start, if that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:  # noqa: BLE001
            logger.warning("kernel cache in %s cannot be written: %r", self.cache_path, error)
