"""What all processes of a service take: resident memory, file handles, threads."""

import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from service.loadtest.errors import LoadTestError
from service.loadtest.processes import ServiceProcess

__all__ = ["Footprint", "quiet_footprint"]

_QUIET_SECONDS = 10.0
_POLL_SECONDS = 0.3


@dataclass(frozen=True)
class Footprint:
    """Bytes of each kind of process, and how many handles, threads and processes there are."""

    front_end: int
    fork_server: int
    workers: int
    handles: int
    threads: int
    processes: int

    @property
    def memory(self) -> int:
        """Resident bytes of all processes; what they share counts for each."""
        return self.front_end + self.fork_server + self.workers

    @classmethod
    def of(cls, service: ServiceProcess) -> "Footprint":
        """What it takes now."""
        pids = service.processes
        return cls(
            _resident(sorted({service.process.pid, *service.front_ends})),
            _resident(service.fork_servers),
            _resident(service.workers),
            sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids),
            sum(_number(pid, "Threads") for pid in pids),
            len(pids),
        )

    @classmethod
    def median(cls, footprints: Sequence["Footprint"]) -> "Footprint":
        """The usual one, each number for itself."""
        names = [item.name for item in fields(cls)]
        return cls(*(_median([getattr(item, name) for item in footprints]) for name in names))


def quiet_footprint(service: ServiceProcess) -> Footprint:
    """What it takes once nothing is opened or closed any more."""
    end, last = time.monotonic() + _QUIET_SECONDS, None
    while time.monotonic() < end:
        with suppress(OSError):  # a process has ended meanwhile
            now = Footprint.of(service)
            if last is not None and (now.handles, now.threads) == (last.handles, last.threads):
                return now
            last = now
        time.sleep(_POLL_SECONDS)
    raise LoadTestError(f"the service is not quiet {_QUIET_SECONDS:.0f} s after the last request")


def _median(values: Sequence[int]) -> int:
    return statistics.median_low(values)


def _resident(pids: Sequence[int]) -> int:
    return sum(1024 * _number(pid, "VmRSS") for pid in pids)


def _number(pid: int, name: str) -> int:
    """A number in the status of a process."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
