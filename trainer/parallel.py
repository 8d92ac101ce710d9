"""Work spread over threads or processes, results in order, progress shown.

Kernels and decoders run without the GIL, so threads use all cores while sharing
arrays. Processes are for code that keeps something global. Results never depend on how
many there are.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tqdm import tqdm

__all__ = ["map_in_processes", "map_ordered", "n_threads"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_ordered(
    function: Callable[[Item], Result], items: Sequence[Item], title: str
) -> Iterator[Result]:
    """`function` of each item, in order; a bar on a terminal, silence elsewhere.

    Only a few results per thread wait at any time, so that large ones do not pile up.
    """
    threads = n_threads()
    waiting: deque[Future[Result]] = deque()
    bar = tqdm(total=len(items), desc=title, disable=None, leave=False)
    with bar, ThreadPoolExecutor(threads) as executor:
        for item in items:
            waiting.append(executor.submit(function, item))
            if len(waiting) > 4 * threads:
                yield waiting.popleft().result()
                bar.update()
        while waiting:
            yield waiting.popleft().result()
            bar.update()


def map_in_processes(
    function: Callable[[Item], Result], items: Sequence[Item], title: str, count: int
) -> Iterator[Result]:
    """`function` of each item, in order, by `count` processes; one is this process.

    `function` and items are pickled, large arrays among them mapped from a file that all
    processes share. The processes stay for the next call.
    """
    # Here, because most commands need no processes, and to import it takes a while.
    from joblib import Parallel, delayed  # noqa: PLC0415

    parallel = Parallel(n_jobs=count, return_as="generator")
    results = parallel(delayed(function)(item) for item in items)
    yield from tqdm(results, total=len(items), desc=title, disable=None, leave=False)
