"""One piece of work on its way through the pool, and what comes back of it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from service.pool.frames import Fields, Frame, Kind

__all__ = ["Job", "Outcome", "Timings"]

Value = TypeVar("Value")


class Timings(NamedTuple):
    """Where the time of one job went, in seconds."""

    queue: float
    """From being accepted until the worker that answered began."""
    worker: float
    """In that worker, all stages and what surrounds them."""
    stages: Mapping[str, float]
    """The engine's stages that ran, by their names in `service.engine.STAGES`."""


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
    timer: asyncio.TimerHandle | None = None
    prefetched: float = 0.0
    started: float = 0.0
    attempts: int = 0

    def frame(self) -> Frame:
        """The message that asks a worker to do it."""
        return Frame(self.kind, self.number, self.fields, self.body)

    def cancel_timer(self) -> None:
        """Let nothing more happen at the deadline."""
        if self.timer is not None:
            self.timer.cancel()

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless there is an answer or nobody waits for one."""
        if not self.answer.done():
            self.answer.set_exception(error)
