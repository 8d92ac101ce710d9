"""What the stages of a fit take: seconds, CPU seconds and memory, each stage under its name.

Whoever wants to know opens a `recording`; `with stage("tree"):` tells it, from deep inside, what is
being done. A stage inside another one interrupts it, so that all records add up to the whole.
Stages are entered by the thread that opened the recording; their work may be spread over others.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, get_args

try:
    import resource
except ImportError:  # on Windows, which does not tell the peak
    resource = None  # type: ignore[assignment]

__all__ = [
    "STAGES",
    "StageName",
    "StageRecord",
    "StageRecording",
    "come_further",
    "peak_bytes",
    "recording",
    "stage",
]

StageName = Literal[
    "descriptors",
    "tree",
    "dictionary",
    "residuals",
    "pooled vectors",
    "search",
    "classifier",
    "mirrored copies",
    "evaluation",
    "other",
]

STAGES: tuple[StageName, ...] = get_args(StageName)
"""All stages in the order in which a fit comes to them first; `other` is what is in none."""


@dataclass(frozen=True)
class StageRecord:
    """What one stage took so far, all of its turns together.

    `peak_bytes` is the most memory that the process has had, if it was in this stage: the system
    keeps one peak for a process, which a stage raises or does not. None if it never did.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int | None = None

    def to_json(self) -> dict[str, object]:
        """The figures as plain JSON values."""
        return {
            "seconds": round(self.seconds, 2),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "peak_bytes": self.peak_bytes,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "StageRecord":
        """The record that `to_json` wrote."""
        return cls(fields["seconds"], fields["cpu_seconds"], fields["peak_bytes"])


class StageRecording:
    """The records of a run, and which stage it is in."""

    def __init__(self, on_change: Callable[["StageRecording"], None] | None = None) -> None:
        self._on_change = on_change
        self.records: dict[StageName, StageRecord] = {}
        self._open: list[StageName] = ["other"]
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._peak = 0

    @property
    def current(self) -> StageName:
        """The innermost stage that is open."""
        return self._open[-1]

    @property
    def open(self) -> tuple[StageName, ...]:
        """The stages that are open, the innermost last."""
        return tuple(self._open)

    def changed(self) -> None:
        """Tell whoever wants to know that a stage begins, ends or has come further."""
        if self._on_change is not None:
            self._on_change(self)

    @contextmanager
    def stage(self, name: StageName) -> Iterator[None]:
        """Time until the end of the block is the stage's, but for stages inside."""
        self._charge()
        self._open.append(name)
        self.changed()
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def until_now(self) -> dict[StageName, StageRecord]:
        """The records until now, in the order of `STAGES`."""
        self._charge()
        return {name: self.records[name] for name in STAGES if name in self.records}

    def _charge(self) -> None:
        """Put what was taken since the last change down to the current stage."""
        wall, cpu, peak = time.monotonic(), time.process_time(), peak_bytes() or 0
        so_far = self.records.get(self.current, StageRecord())
        self.records[self.current] = StageRecord(
            so_far.seconds + wall - self._wall,
            so_far.cpu_seconds + cpu - self._cpu,
            peak if peak > self._peak else so_far.peak_bytes,
        )
        self._wall, self._cpu, self._peak = wall, cpu, peak


_CURRENT: ContextVar[StageRecording | None] = ContextVar("stage_recording", default=None)


@contextmanager
def recording(
    on_change: Callable[[StageRecording], None] | None = None,
) -> Iterator[StageRecording]:
    """A new recording, which stages report to until the end of the block.

    `on_change` is called with it whenever a stage begins or has come further.
    """
    opened = StageRecording(on_change)
    token = _CURRENT.set(opened)
    try:
        yield opened
    finally:
        _CURRENT.reset(token)


@contextmanager
def stage(name: StageName) -> Iterator[None]:
    """The block is this stage of whatever recording is open; without one, nothing is recorded."""
    current = _CURRENT.get()
    if current is None:
        yield
        return
    with current.stage(name):
        yield


def come_further() -> None:
    """Say that some more of the current stage is done."""
    current = _CURRENT.get()
    if current is not None:
        current.changed()


def peak_bytes() -> int | None:
    """The most memory that this process has had; None where the system does not tell."""
    if resource is None:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
