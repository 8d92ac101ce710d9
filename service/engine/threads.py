"""Several cores for one image: a stage's rows or descriptors, split over threads.

Kernels run without the GIL. What a thread computes does not depend on how the work was
split, so that any number of threads gives the same answer, bit for bit.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

__all__ = ["ONE_THREAD", "Threads"]

# Pieces per thread: one that starts late, or shares its core, leaves its pieces to others.
_PIECES = 4


class Threads:
    """A number of threads, started when first needed."""

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise ValueError(f"{count} threads, expected at least one thread")
        self.count = count

    def split(self, work: Callable[[int, int], None], size: int) -> None:
        """Call `work(begin, end)` for pieces that make up 0 to `size`, and wait for all."""
        if self.count == 1 or size == 0:
            work(0, size)
            return
        pieces = min(_PIECES * self.count, size)
        bounds = [size * piece // pieces for piece in range(pieces + 1)]
        for _ in self._executor.map(work, bounds[:-1], bounds[1:]):
            pass

    @cached_property
    def _executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.count, thread_name_prefix="engine")


ONE_THREAD = Threads(1)
