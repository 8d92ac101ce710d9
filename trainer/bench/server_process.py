"""Servers as processes of their own, the service and its peers: their workers, CPU and memory.

A server says `ready at http://…` on standard error. Workers of the service are the children
of its fork server; those of a peer write `worker <pid>` to standard error themselves.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer.errors import TrainingError

__all__ = [
    "Address",
    "ServerProcess",
    "Usage",
    "all_workers_ready",
    "environment",
    "leafcode",
    "peer",
    "wait_until_all_ready",
]

Address = tuple[str, int]

_READY = re.compile(r"ready at http://([0-9.]+):(\d+)")
_WORKER = re.compile(r"^worker (\d+)$", re.MULTILINE)
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_LAST_LINES = 5
_POLL_SECONDS = 0.01
_PROC = Path("/proc")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Usage:
    """CPU seconds of a server so far, and the resident bytes of all its processes.

    The front end is the process with the event loop.
    """

    front_end_cpu: float
    workers_cpu: float
    bytes: int


class ServerProcess:
    """Runs `python -m <arguments>`, waits until it is ready, and stops it after the block."""

    def __init__(
        self, arguments: Sequence[str], workers: Callable[["ServerProcess"], list[int]]
    ) -> None:
        self.address: Address = ("", 0)
        self._arguments = arguments
        self._workers = workers

    def __enter__(self) -> Self:
        # A file, because reading a pipe would take CPU from what is measured.
        self._log = tempfile.NamedTemporaryFile("w+", prefix="leafcode-", suffix=".log")
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env=environment(),
        )
        try:
            self.address = self._wait_until_ready(time.perf_counter() + _START_SECONDS)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def log(self) -> str:
        """What it has written to standard error so far."""
        return Path(self._log.name).read_text("utf-8", "replace")

    @property
    def workers(self) -> list[int]:
        """The process ids of its workers that are alive, in the order of their start."""
        return [pid for pid in self._workers(self) if _alive(pid)]

    def usage(self) -> Usage:
        """What it has used until now."""
        workers = self.workers
        processes = {self.process.pid, *below(self.process.pid), *workers}
        return Usage(
            _cpu_seconds(self.process.pid),
            sum(map(_cpu_seconds, workers)),
            sum(map(_resident_bytes, processes)),
        )

    def _wait_until_ready(self, deadline: float) -> Address:
        while not (ready := _READY.search(self.log)):
            if self.process.poll() is not None or time.perf_counter() > deadline:
                last = " / ".join(self.log.splitlines()[-_LAST_LINES:])
                raise TrainingError(f"{self._arguments[0]} did not start: {last}")
            time.sleep(_POLL_SECONDS)
        return ready[1], int(ready[2])

    def _stop(self) -> None:
        """Ask it to end, then kill it: a server that lost a worker may hang."""
        children = below(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in filter(_alive, children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._log.close()


def leafcode(models: Path, *arguments: str) -> ServerProcess:
    """The service, on a port that the system chooses."""
    return ServerProcess(
        ["service", "serve", "--port", "0", "--models", str(models), *arguments], _forked
    )


def peer(module: str, bundle: Path, cores: Sequence[int]) -> ServerProcess:
    """One of the applications in `peer_servers/`, its workers pinned to these cores."""
    name = f"trainer.bench.peer_servers.{module}"
    return ServerProcess([name, str(bundle), *map(str, cores)], _announced)


def all_workers_ready(address: Address) -> bool:
    """Whether every worker of the service is ready, where it calls itself ready with one."""
    with contextlib.closing(HTTPConnection(*address, timeout=_START_SECONDS)) as connection:
        connection.request("GET", "/readyz?strict=true")
        response = connection.getresponse()
        response.read()
        return response.status == 200


def wait_until_all_ready(address: Address, seconds: float = _START_SECONDS) -> None:
    """Return as soon as every worker of the service is ready."""
    deadline = time.perf_counter() + seconds
    while not all_workers_ready(address):
        if time.perf_counter() > deadline:
            raise TrainingError(f"not every worker was ready within {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)


def below(pid: int) -> list[int]:
    """Every process below another one, children of children too."""
    return [found for child in _children(pid) for found in (child, *below(child))]


def _forked(server: ServerProcess) -> list[int]:
    """Children of the fork server, which is the service's only child; oldest first."""
    return sorted(pid for child in _children(server.process.pid) for pid in _children(child))


def _announced(server: ServerProcess) -> list[int]:
    return [int(pid) for pid in _WORKER.findall(server.log)]


def _children(pid: int) -> list[int]:
    """The children of all threads of a process."""
    children: list[int] = []
    for file in (_PROC / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, file.read_text().split())
    return children


def _alive(pid: int) -> bool:
    """Whether a process runs, which one that ended and is not yet waited for does not."""
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of all threads of a process; none if it has ended."""
    # What clock_getcpuclockid(3) makes of a process id, CPUCLOCK_SCHED. It counts nanoseconds,
    # where /proc/<pid>/stat counts ticks of 10 ms, which is much in a turn of few requests.
    clock = (~pid << 3) | 2
    with contextlib.suppress(OSError):
        return time.clock_gettime(clock)
    return 0.0


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def environment() -> dict[str, str]:
    """This environment without settings of the service, and the package on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEAFCODE_")}
    return {**kept, "PYTHONPATH": str(_ROOT)}
