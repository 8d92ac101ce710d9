"""One piece of work in the pool, what comes back of it, and what the pool tells of itself."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

from service.pool.frames import Fields, Frame, Kind

__all__ = ["Job", "Outcome", "PoolState", "State", "Timings", "WorkerState"]

Value = TypeVar("Value")

State = Literal["starting", "loading", "idle", "busy", "reloading", "silent", "waiting"]


class Timings(NamedTuple):
    """Where the time of one job went, in seconds."""

    queue: float
    """From being accepted to being sent to the worker that answered."""
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
    """Work on its way through the queue and a worker; times are those of the event loop."""

    number: int
    kind: Kind
    fields: Fields
    body: bytes | memoryview
    answer: "asyncio.Future[Frame]"
    accepted: float
    deadline: float
    timer: asyncio.TimerHandle | None = None
    handed_over: float = 0.0
    started: float = 0.0
    attempts: int = 0

    def frame(self) -> Frame:
        """The question to a worker."""
        return Frame(self.kind, self.number, self.fields, self.body)

    def cancel_timer(self) -> None:
        """Nothing more happens at the deadline."""
        if self.timer is not None:
            self.timer.cancel()

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless there is an answer or nobody waits for one."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(frozen=True)
class WorkerState:
    """One worker at one moment; `reason` says why it takes no work."""

    number: int
    cores: tuple[int, ...]
    pid: int | None
    state: State
    reason: str
    restarts: int

    @property
    def ready(self) -> bool:
        """Whether it works, waits for work, or will in a moment."""
        return self.state in ("idle", "busy", "reloading")

    def resident_bytes(self) -> int:
        """Memory in use, shared pages included; zero if the system does not tell."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class PoolState:
    """The pool at one moment. `refusals` counts by reason since the start."""

    accepting: bool
    queue_depth: int
    queue_bytes: int
    workers: tuple[WorkerState, ...]
    refusals: Mapping[str, int]

    @property
    def busy(self) -> int:
        """Workers that work."""
        return sum(worker.state == "busy" for worker in self.workers)

    @property
    def restarts(self) -> int:
        """Workers that were replaced since the start."""
        return sum(worker.restarts for worker in self.workers)

    def obstacles(self) -> list[str]:
        """Why the service is not ready; empty if it is."""
        if not self.accepting:
            return ["the service is starting or stopping"]
        return [
            f"worker {worker.number} (cores {', '.join(map(str, worker.cores))}) "
            f"is {worker.state}: {worker.reason}"
            for worker in self.workers
            if not worker.ready
        ]
