"""Several cores for one image: a stage's rows or descriptors, split over threads.

Kernels run without the GIL. What a thread computes does not depend on how the work was
split, so that any number of threads gives the same answer, bit for bit.
"""

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from queue import Empty, SimpleQueue

__all__ = ["ONE_THREAD", "Threads"]


class Threads:
    """A number of threads, started when first needed."""

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise ValueError(f"{count} threads, expected at least one thread")
        self.count = count

    def split(self, work: Callable[[int, int], None], size: int) -> None:
        """Call `work(begin, end)` for pieces that make up 0 to `size`, and wait for all.

        One piece each: with two or four, handing them out took longer than waiting for the
        slower thread (9.0 instead of 7.3 ms for a photograph on two cores).
        """
        if self.count == 1 or size == 0:
            work(0, size)
            return
        pieces = min(self.count, size)
        bounds = [size * piece // pieces for piece in range(pieces + 1)]
        for _ in self._executor.map(work, bounds[:-1], bounds[1:]):
            pass

    @cached_property
    def _executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.count, "engine", _pin, (_own_cores(self.count),))


def _own_cores(count: int) -> SimpleQueue[int]:
    """A core for each thread if the process was given just as many, else none."""
    queue: SimpleQueue[int] = SimpleQueue()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    if len(cores) == count:
        for core in cores:
            queue.put(core)
    return queue


def _pin(cores: SimpleQueue[int]) -> None:
    """Keep this thread to a core of its own.

    Left to the system, two threads that wake for a few milliseconds may share one. A process
    that may use more cores than it has threads does not know which of them others use.
    """
    with contextlib.suppress(Empty, OSError):
        os.sched_setaffinity(0, {cores.get_nowait()})  # of this thread, on Linux


ONE_THREAD = Threads(1)
