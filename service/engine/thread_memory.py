"""Memory that kernels write while they work, kept by each thread for its next call.

It is in that thread's cache, and after a kernel little of Python is: to make it anew took .1 ms
for a photograph.
"""

import threading
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

__all__ = ["kept_by_thread"]

P = ParamSpec("P")
R = TypeVar("R")

# Kinds of memory that a thread keeps at a time, those that were asked for last.
_KINDS = 8


def kept_by_thread(make: Callable[P, R]) -> Callable[P, R]:
    """A function that makes memory: a thread that asks for the same again gets the same again."""

    class Kept(threading.local):
        def __init__(self) -> None:
            self.make = lru_cache(maxsize=_KINDS)(make)

    kept = Kept()

    @wraps(make)
    def make_or_keep(*args: P.args, **kwargs: P.kwargs) -> R:
        found: R = kept.make(*args, **kwargs)  # type: ignore[arg-type]  # all are numbers
        return found

    return make_or_keep
