"""Several cores for one image: a stage's rows or descriptors, split over threads.

Kernels run without the GIL. What a thread computes does not depend on how the work was
split, so that any number of threads gives the same answer, bit for bit.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from itertools import pairwise

__all__ = ["ONE_THREAD", "Threads"]


class Threads:
    """A number of threads, the caller's among them; the others start when first needed."""

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise ValueError(f"{count} threads, expected at least one thread")
        self.count = count

    def split(self, work: Callable[[int, int], None], size: int) -> None:
        """Call `work(begin, end)` for pieces that make up 0 to `size`, and wait for all.

        One piece each: with two or four, handing them out took longer than waiting for the
        slower thread.
        """
        pieces = min(self.count, max(size, 1))
        bounds = [size * piece // pieces for piece in range(pieces + 1)]
        others = [self._executor.submit(work, begin, end) for begin, end in pairwise(bounds[1:])]
        try:
            # The first piece here: to wake one thread takes long enough.
            work(bounds[0], bounds[1])
        finally:
            wait(others)
        for other in others:
            other.result()

    @cached_property
    def _executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.count - 1, "engine")


ONE_THREAD = Threads(1)
