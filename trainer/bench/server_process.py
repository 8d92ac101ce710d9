"""Servers as processes of their own: started, asked, looked at through /proc, stopped.

A server says `ready at http://…` on standard error. Its workers are found by where they
stand below it: ours are the fork server's children, others' say `worker <pid>` themselves.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from trainer.bench.load import Address
from trainer.errors import TrainingError

__all__ = ["Client", "Server", "Usage", "leafcode", "rival"]

_READY = re.compile(r"ready at http://([0-9.]+):(\d+)")
_WORKER = re.compile(r"^worker (\d+)$", re.MULTILINE)
_HEAD = re.compile(rb"content-length: *(\d+)\r\n(?s:.*?)\r\n\r\n", re.IGNORECASE)
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_LAST_LINES = 5
_POLL_SECONDS = 0.01
_PROC = Path("/proc")
_PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Usage:
    """What the processes of a server have used: CPU seconds so far, and bytes resident now."""

    front_cpu: float
    workers_cpu: float
    bytes: int


class Server:
    """`python -m <arguments>` until it says that it is ready; stopped at the end of the block."""

    def __init__(self, arguments: Sequence[str], workers: Callable[["Server"], list[int]]) -> None:
        self.address: Address = ("", 0)
        self.ready_seconds = 0.0
        self._arguments = arguments
        self._workers = workers

    def __enter__(self) -> Self:
        # A file, because reading a pipe would take CPU from what is measured.
        self._log = tempfile.NamedTemporaryFile("w+", prefix="leafcode-", suffix=".log")
        started = time.perf_counter()
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env=_environment(),
        )
        try:
            self.address = self._wait_until_ready(started + _START_SECONDS)
        except BaseException:
            self._stop()
            raise
        self.ready_seconds = time.perf_counter() - started
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
        """What it has said so far."""
        return Path(self._log.name).read_text("utf-8", "replace")

    @property
    def workers(self) -> list[int]:
        """The process ids of its workers that live, in the order of their start."""
        return [pid for pid in self._workers(self) if _alive(pid)]

    def usage(self) -> Usage:
        """What it has used until now; the front is everything but the workers."""
        workers = self.workers
        front = {self.process.pid, *below(self.process.pid)}.difference(workers)
        return Usage(
            sum(map(_cpu_seconds, front)),
            sum(map(_cpu_seconds, workers)),
            sum(map(_resident_bytes, (*front, *workers))),
        )

    def _wait_until_ready(self, deadline: float) -> Address:
        while not (ready := _READY.search(self.log)):
            if self.process.poll() is not None or time.perf_counter() > deadline:
                last = " / ".join(self.log.splitlines()[-_LAST_LINES:])
                raise TrainingError(f"{self._arguments[0]} did not start: {last}")
            time.sleep(_POLL_SECONDS)
        return ready[1], int(ready[2])

    def _stop(self) -> None:
        """Ask it to end, then insist: a server that was robbed of a worker may hang."""
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


def leafcode(models: Path, *arguments: str) -> Server:
    """Our own service on a port that the system chooses."""
    return Server(["service", "serve", "--port", "0", "--models", str(models), *arguments], _forked)


def rival(module: str, bundle: Path, cores: Sequence[int]) -> Server:
    """One of the applications in `peer_servers/`, its workers pinned to these cores."""
    name = f"trainer.bench.peer_servers.{module}"
    return Server([name, str(bundle), *map(str, cores)], _announced)


class Client:
    """One connection that waits for its answer: the cheapest client there is."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, _START_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a page."""
        return self.ask(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to ready-made bytes."""
        self._socket.sendall(request)
        answer = b""
        while not (
            match := re.search(
                rb"content-length: *(\d+)\r\n(?s:.*?)\r\n\r\n", answer, re.IGNORECASE
            )
        ):
            answer += self._receive()
        while len(answer) < match.end() + int(match[1]):
            answer += self._receive()
        return int(answer[9:12]), answer[match.end() :]

    def _receive(self) -> bytes:
        data = self._socket.recv(65_536)
        if not data:
            raise TrainingError("the server hung up in the middle of an answer")
        return data


def below(pid: int) -> list[int]:
    """Every process below another one, children of children too."""
    return [found for child in _children(pid) for found in (child, *below(child))]


def _forked(server: Server) -> list[int]:
    """Children of the fork server, which is the service's only child; oldest first."""
    return sorted(pid for child in _children(server.process.pid) for pid in _children(child))


def _announced(server: Server) -> list[int]:
    return [int(pid) for pid in _WORKER.findall(server.log)]


def _children(pid: int) -> list[int]:
    """The children of all threads of a process."""
    children: list[int] = []
    for file in (_PROC / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, file.read_text().split())
    return children


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name, state first; none if it has ended."""
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return []


def _alive(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def _cpu_seconds(pid: int) -> float:
    ticks = sum(int(field) for field in _stat(pid)[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def _environment() -> dict[str, str]:
    """Ours without settings of the developer's own, and the package in reach."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEAFCODE_")}
    return {**kept, "PYTHONPATH": str(_PACKAGE)}
