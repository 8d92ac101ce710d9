"""All parts of a job, by whoever there is to do them, until the table is whole."""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

from trainer.errors import TrainingError
from trainer.predict.job import Job, Part
from trainer.predict.processes import LostProcessError, Unfinished
from trainer.predict.progress import PredictProgress
from trainer.predict.summary import TableCounts
from trainer.predict.worker import Attempt, classify_part, reached

__all__ = ["Workers", "classify_parts"]

logger = logging.getLogger(__name__)

# Processes that a part may end without it being clear which image ends them.
_MOST_LOSSES = 5

Arguments = ParamSpec("Arguments")
Finished = TypeVar("Finished")


class Workers(Protocol):
    """Who calls functions elsewhere: processes of this machine, or a cluster."""

    @property
    def capacity(self) -> int:
        """How many calls are worth having under way; more only wait."""

    @property
    def lost(self) -> tuple[type[Exception], ...]:
        """What a call raises whose process has ended."""

    def submit(
        self,
        function: Callable[Arguments, Unfinished[Finished]],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Future[Finished]:
        """Have a function called, with arguments that can be pickled, and its result finished."""


def classify_parts(
    job: Job, parts: Iterable[Part], workers: Workers, progress: PredictProgress
) -> TableCounts:
    """Have the parts done in their order, and `progress` told of each; what is in all of them."""
    counts = TableCounts()
    for done in _Run(job, deque(parts), workers):
        counts.add(done)
        progress.advance(done)
    return counts


@dataclass
class _Losses:
    """What is known of a part that ended processes."""

    count: int = 0
    suspect: int | None = None
    blamed: dict[int, str] = field(default_factory=dict)

    def add(self, place: int | None, how: str) -> None:
        """Count another one; an image at which two processes ended is to blame."""
        self.count += 1
        if place is not None and place == self.suspect:
            self.blamed[place] = f"the process that read it ended with {how}"
            self.count, self.suspect = 0, None
        else:
            self.suspect = place


def _how(error: Exception) -> str:
    """How a process ended, as far as it is known."""
    return str(error) if isinstance(error, LostProcessError) else type(error).__name__


class _Run:
    """The parts that are left, those under way, and those that ended processes."""

    def __init__(self, job: Job, left: deque[Part], workers: Workers) -> None:
        self._job, self._left, self._workers = job, left, workers
        self._under_way: dict[Future[TableCounts], Part] = {}
        self._losses: dict[int, _Losses] = {}

    def __iter__(self) -> "_Run":
        return self

    def __next__(self) -> TableCounts:
        """The next part that is done, in any order."""
        while self._left or self._under_way:
            self._submit()
            finished, _ = wait(self._under_way, return_when=FIRST_COMPLETED)
            future = finished.pop()
            part = self._under_way.pop(future)
            try:
                return future.result()
            except self._workers.lost as error:
                self._try_again(part, _how(error))
        raise StopIteration

    def _submit(self) -> None:
        while self._left and len(self._under_way) < self._workers.capacity:
            part = self._left.popleft()
            losses = self._losses.get(part.number)
            attempt = Attempt(careful=True, blamed=losses.blamed) if losses else Attempt()
            future = self._workers.submit(classify_part, self._job, part, attempt)
            self._under_way[future] = part

    def _try_again(self, part: Part, how: str) -> None:
        losses = self._losses.setdefault(part.number, _Losses())
        losses.add(reached(self._job, part), how)
        logger.warning("a process ended with %s; its part is begun again", how)
        if losses.count > _MOST_LOSSES:
            raise TrainingError(
                f"{losses.count} processes ended in the part of {part.names[0]} and others, the "
                f"last with {how}, and not always at the same image: is there enough memory?"
            )
        self._left.appendleft(part)
