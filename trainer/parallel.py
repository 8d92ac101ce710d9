"""Work spread over threads, results in order, progress shown.

Kernels, decoders and BLAS run without the GIL, so threads use all cores while sharing
arrays. Results never depend on how many there are.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from trainer.stages import come_further

__all__ = ["map_ordered", "n_threads", "one_blas_thread", "one_thread", "progress_bar"]

Item = TypeVar("Item")
Result = TypeVar("Result")


_is_one_thread: ContextVar[bool] = ContextVar("one thread", default=False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Until the end of the block, work is not spread: others use the cores at the same time."""
    token = _is_one_thread.set(True)
    try:
        yield
    finally:
        _is_one_thread.reset(token)


def n_threads() -> int:
    """Cores this process may use."""
    if _is_one_thread.get():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[object]:
    """BLAS, NumPy's and SciPy's, adds up in one thread, and so in one order on any machine.

    It is also for code that computes several products of matrices side by side.
    """
    limits: AbstractContextManager[object] = _loaded_libraries().limit(limits=1, user_api="blas")
    return limits


@cache
def _loaded_libraries() -> Any:
    """What limits the threads of libraries; those that are loaded, so SciPy's is loaded first.

    Looking for them takes 4 ms, longer than most of what is computed with few descriptors.
    """
    # Libraries are imported where they are called, so that --help needs none of them.
    import scipy.linalg  # noqa: F401, PLC0415
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415

    return ThreadpoolController()


def map_ordered(
    function: Callable[[Item], Result], items: Sequence[Item], title: str
) -> Iterator[Result]:
    """`function` of each item, in order; a bar on a terminal, silence elsewhere.

    Only a few results per thread wait at any time, so that large ones do not pile up.
    """
    threads = n_threads()
    waiting: deque[Future[Result]] = deque()
    bar = progress_bar(total=len(items), desc=title)
    with bar, ThreadPoolExecutor(threads) as executor:
        for item in items:
            waiting.append(executor.submit(function, item))
            if len(waiting) > 4 * threads:
                yield waiting.popleft().result()
                bar.update()
                come_further()
        while waiting:
            yield waiting.popleft().result()
            bar.update()
            come_further()


def progress_bar(*arguments: Any, **options: Any) -> Any:
    """A bar on a terminal that is gone at the end, silence elsewhere; arguments as tqdm's."""
    from tqdm import tqdm  # noqa: PLC0415

    return tqdm(*arguments, **options, disable=None, leave=False)
