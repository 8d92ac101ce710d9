"""What the pool tells of itself at one moment: for probes, metrics and logs."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["PoolState", "State", "WorkerState"]

State = Literal["starting", "loading", "idle", "busy", "reloading", "silent", "waiting"]

_MEANINGS: dict[State, str] = {
    "starting": "is starting",
    "loading": "is loading its models",
    "idle": "is idle",
    "busy": "is busy",
    "reloading": "is loading or unloading a version",
    "silent": "does not answer",
    "waiting": "waits before it is started again",
}


@dataclass(frozen=True)
class WorkerState:
    """One worker at one moment; `reason` says why it takes no work, if there is more to say."""

    number: int
    cores: tuple[int, ...]
    """Those that it is meant to be pinned to; none if the kernel places it."""
    pinned: bool
    """Whether its process really keeps to them: a sandbox may forbid it."""
    pid: int | None
    state: State
    reason: str
    restarts: int

    @property
    def ready(self) -> bool:
        """Whether it works, waits for work, or will in a moment."""
        return self.state in ("idle", "busy", "reloading")

    @property
    def place(self) -> str:
        """Where it runs, or will run once it has a process."""
        if not self.cores or not (self.pinned or self.pid is None):
            return "not pinned"
        return f"core{'s' * (len(self.cores) > 1)} {', '.join(map(str, self.cores))}"

    def __str__(self) -> str:
        """A sentence such as "worker 1 (core 3) is starting: its process was killed"."""
        reason = f": {self.reason}" if self.reason else ""
        return f"worker {self.number} ({self.place}) {_MEANINGS[self.state]}{reason}"

    def resident_bytes(self) -> int:
        """Memory in use, shared pages included; zero if the system does not tell."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class PoolState:
    """The pool at one moment; `rejections` counts jobs by reason since the start."""

    accepting: bool
    queue_depth: int
    queue_bytes: int
    workers: tuple[WorkerState, ...]
    rejections: Mapping[str, int]

    @property
    def busy(self) -> int:
        """How many workers are busy."""
        return sum(worker.state == "busy" for worker in self.workers)

    @property
    def restarts(self) -> int:
        """How many workers were replaced since the start."""
        return sum(worker.restarts for worker in self.workers)

    def obstacles(self, *, strict: bool = False) -> list[str]:
        """Why the service is not ready, in sentences; empty if it is.

        One worker in service is enough, unless `strict` asks for all of them.
        """
        if not self.accepting:
            return ["the service is starting or stopping"]
        away = [str(worker) for worker in self.workers if not worker.ready]
        return away if strict or len(away) == len(self.workers) else []
