"""One piece of work on its way through the pool, what comes back of it, and until when."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from service.pool.frames import Fields, Frame, Kind

__all__ = ["Deadlines", "Job", "Outcome", "Timings"]

Value = TypeVar("Value")


class Timings(NamedTuple):
    """Where the time of one job went, in seconds, and what else is counted of it."""

    queue: float
    """From being accepted until the worker that answered began."""
    worker: float
    """In that worker, all stages and what surrounds them."""
    stages: Mapping[str, float]
    """The engine's stages that ran, by their names in `service.engine.STAGES`."""
    unknown: int = 0
    """Images that look like none of the model's classes."""


class Outcome(NamedTuple, Generic[Value]):
    """A result, and where its time went."""

    value: Value
    timings: Timings


@dataclass(slots=True, eq=False)
class Job:
    """Work for one worker; all moments are times of the event loop."""

    number: int
    kind: Kind
    fields: Fields
    body: bytes | memoryview
    answer: "asyncio.Future[Frame]"
    accepted: float
    deadline: float
    prefetched: float = 0.0
    started: float = 0.0
    attempts: int = 0

    def frame(self) -> Frame:
        """The message that asks a worker to do it."""
        return Frame(self.kind, self.number, self.fields, self.body)

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless there is an answer or nobody waits for one."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Deadlines:
    """Calls `on_due` when a job's moment has come, by one timer for all jobs.

    Most jobs are done long before. To start and stop a timer for each of them, which uvloop
    also has to close, took a tenth of the front end's CPU.
    """

    def __init__(self, on_due: Callable[[Job], None]) -> None:
        self._on_due = on_due
        self._moments: dict[Job, float] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0

    def set(self, job: Job, moment: float) -> None:
        """Have `on_due` called at a time of the event loop, in place of any earlier wish."""
        self._moments[job] = moment
        if self._timer is None or moment < self._next:
            self._wait_until(moment)

    def drop(self, job: Job) -> None:
        """Have nothing called for a job any more."""
        self._moments.pop(job, None)

    def stop(self) -> None:
        """Have nothing called at all any more."""
        self._moments.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait_until(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = moment
        self._timer = self._loop.call_at(moment, self._call_due)

    def _call_due(self) -> None:
        self._timer = None
        # The loop itself may call a little early, by the resolution of its clock.
        now = max(self._loop.time(), self._next)
        for job in [job for job, moment in self._moments.items() if moment <= now]:
            if self._moments.pop(job, None) is not None:
                self._on_due(job)
        if self._moments:
            self._wait_until(min(self._moments.values()))
