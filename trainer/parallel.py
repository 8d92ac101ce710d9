"""Work spread over threads, results in order, progress shown.

Kernels and decoders run without the GIL, so threads use all cores while sharing
arrays; results never depend on how many there are.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tqdm import tqdm

__all__ = ["map_ordered", "n_threads"]

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
