"""Work for the workers of a cluster: functions of this trainer, and data that stay with them.

A task is a function with arguments that may be results of other tasks, which the driver never
sees. Dask remembers how each result came about: those that a dead worker had are computed again,
and come out the same, because every task depends on its arguments only.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import getitem
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import numpy as np

from trainer.errors import ClusterError, DataError
from trainer.parallel import one_thread, progress_bar
from trainer.stages import come_further

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Tasks", "gathered", "spans"]

Value = TypeVar("Value")

# Results that are added up by one task.
_FAN_IN = 4
# Results that the driver asks for together.
_AT_A_TIME = 32


class Tasks:
    """What is submitted to the workers that a client is connected to."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "Future":
        """The future result of a function; futures among its arguments become their results."""
        return self._client.submit(
            _in_one_thread, function, *arguments, key=_key(function), pure=False
        )

    def given(self, value: Any) -> "Future":
        """A value of the driver that many tasks need, sent once and kept as results are."""
        return self._client.submit(_itself, value, key=_key(_itself), pure=False)

    def map(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list["Future"]:
        """The function of the first of all columns, of the second, and so on.

        They are submitted together: one by one, the 5000 tasks of a fit took driver and scheduler
        some 6 s more.
        """
        functions, key = [function] * len(columns[0]), _key(function)
        keys = [f"{key}-{number}" for number in range(len(functions))]
        futures: list[Future] = self._client.map(
            _in_one_thread, functions, *columns, key=keys, pure=False
        )
        return futures

    def each(
        self, function: Callable[..., Any], items: Sequence[Any], *arguments: Any
    ) -> list["Future"]:
        """The function of every item, with further arguments that are the same for all."""
        return self.map(function, items, *([argument] * len(items) for argument in arguments))

    def total(self, futures: Sequence["Future"]) -> "Future":
        """The sum of results, added up by the workers, in the same order whoever does it."""
        while len(futures) > 1:
            parts = [futures[i : i + _FAN_IN] for i in range(0, len(futures), _FAN_IN)]
            futures = self.each(_added_up, parts)
        return futures[0]

    def results(self, futures: Sequence["Future"], title: str) -> Iterator[Any]:
        """The results in order, some at a time; a bar on a terminal.

        One by one, a thousand small results took driver and scheduler 1.3 s of CPU time, 32 at a
        time .2 s.
        """
        with progress_bar(total=len(futures), desc=title) as bar:
            for start in range(0, len(futures), _AT_A_TIME):
                some = futures[start : start + _AT_A_TIME]
                with _told_as_ours(title):
                    for future in some:
                        _wait_for(future)
                        bar.update()
                        come_further()
                    found = self._client.gather(some)
                yield from found

    def result(self, future: "Future", title: str) -> Any:
        """One result."""
        return next(self.results([future], title))


def _wait_for(future: "Future") -> None:
    """Wait until a result is there, and raise the error if there will be none."""
    if not future.done():
        future.exception()  # waits, and fetches nothing
    if future.status == "error":
        future.result()


@contextmanager
def _told_as_ours(title: str) -> Iterator[None]:
    """Errors of tasks and of Dask as those of this trainer."""
    from distributed import KilledWorker  # noqa: PLC0415
    from distributed.client import FutureCancelledError  # noqa: PLC0415
    from distributed.comm import CommClosedError  # noqa: PLC0415

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"workers died again and again over the same task ({title}): {error}; "
            "more memory for each of them may help"
        ) from error
    except (FutureCancelledError, CommClosedError) as error:
        raise ClusterError(f"the scheduler was lost ({title}): {error}") from error
    except OSError as error:
        raise DataError(f"a worker could not read or write ({title}): {error}") from error


def gathered(tasks: Tasks, parts: Sequence["Future"], count: int) -> list[list["Future"]]:
    """For each of `count` numbers, the piece of this number of all parts, which are lists."""
    numbers = range(count)
    pieces = tasks.map(
        getitem, [part for _ in numbers for part in parts], [n for n in numbers for _ in parts]
    )
    return [pieces[n * len(parts) : (n + 1) * len(parts)] for n in numbers]


def spans(count: int, least: int, most: int) -> list[range]:
    """0 to `count` in ranges of `least` or more, at most `most` of them.

    They depend on nothing but these numbers, so that a result does not depend on the workers.
    """
    size = max(least, -(-count // most))
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def _key(function: Callable[..., Any]) -> str:
    """A new name for a task, by which the scheduler knows how long tasks of its kind take."""
    from dask.utils import funcname  # noqa: PLC0415

    return f"{funcname(function).strip('_')}-{uuid4().hex}"


def _in_one_thread(function: Callable[..., Value], *arguments: Any) -> Value:
    with one_thread():
        return function(*map(_aligned, arguments))


def _aligned(value: Any) -> Any:
    """An array as it was where it came from: products of one that lies anywhere round otherwise."""
    return np.require(value, requirements="A") if isinstance(value, np.ndarray) else value


def _itself(value: Value) -> Value:
    return value


def _added_up(parts: Sequence[Any]) -> Any:
    return sum(parts[1:], parts[0])
