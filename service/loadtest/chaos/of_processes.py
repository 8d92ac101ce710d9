"""Faults of processes: workers and fork servers that die, stop or loop, and SIGTERM."""

import os
import platform
import signal
import time
from pathlib import Path

from service.loadtest.chaos.fault import Fault, NotPossibleError
from service.loadtest.processes import ServiceProcess, send_signal
from service.loadtest.soak import WORKER_LOST

__all__ = [
    "ForkServerKilled",
    "ForkServerStopped",
    "Terminated",
    "WorkersKilled",
    "WorkersLooping",
    "WorkersStopped",
]

_KILLS = 50
_KILL_SECONDS = 0.1
_HANGS = 3
# A worker that hangs in a job is replaced at the deadline, one that hangs while idle after 5 s.
_SHORT_DEADLINE = 3
_HANG_SECONDS = _SHORT_DEADLINE + 3.0
# A fork server that leaves pings unanswered for 5 s is replaced, which takes a second or two.
_SILENCE_SECONDS = 8.0
_CALM_SECONDS = 2.0

# A jump to itself: the shortest endless loop, by the name of the machine.
_LOOPS = {"x86_64": b"\xeb\xfe", "aarch64": b"\x00\x00\x00\x14"}


class WorkersKilled(Fault):
    """A worker is killed every 100 ms."""

    name = "workers-killed"
    allowed = frozenset({WORKER_LOST})

    def happen(self, service: ServiceProcess) -> None:
        """Kill the oldest one."""
        for _ in range(_KILLS):
            send_signal(service.workers[:1], signal.SIGKILL)
            time.sleep(_KILL_SECONDS)


class WorkersStopped(Fault):
    """A worker, another one, then all are stopped by SIGSTOP."""

    name = "workers-stopped"
    allowed = frozenset({"504 deadline"})
    deadline_seconds = _SHORT_DEADLINE

    def happen(self, service: ServiceProcess) -> None:
        """Stop one, and one, and all of them."""
        for count in (1, 1, None):
            send_signal(service.workers[:count], signal.SIGSTOP)
            time.sleep(_HANG_SECONDS / _HANGS)
        time.sleep(_HANG_SECONDS)


class WorkersLooping(Fault):
    """The next instruction of a worker becomes a jump to itself, three times."""

    name = "workers-looping"
    allowed = frozenset({"504 deadline"})
    deadline_seconds = _SHORT_DEADLINE

    def happen(self, service: ServiceProcess) -> None:
        """Have the oldest worker loop that does not."""
        looping: set[int] = set()
        for _ in range(_HANGS):
            pid = min(set(service.workers) - looping)
            _loop(pid)
            looping.add(pid)
            time.sleep(_HANG_SECONDS / _HANGS)
        time.sleep(_HANG_SECONDS)


def _loop(pid: int) -> None:
    """Overwrite the next instruction of a process, in its own copy of the page of code."""
    loop = _LOOPS.get(platform.machine())
    if loop is None:
        raise NotPossibleError(f"no endless loop is known for {platform.machine()}")
    os.kill(pid, signal.SIGSTOP)
    try:
        address = _next_instruction(pid)
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(loop)
    except PermissionError as error:
        raise NotPossibleError(f"the code of a process cannot be changed: {error}") from error
    finally:
        os.kill(pid, signal.SIGCONT)


def _next_instruction(pid: int) -> int:
    """The address where a process goes on; the system tells it once the process has stopped."""
    file = Path(f"/proc/{pid}/syscall")
    end = time.monotonic() + 1.0
    while (text := file.read_text()).startswith("running"):
        if time.monotonic() > end:
            raise NotPossibleError("a process did not stop within a second")
        time.sleep(0.001)
    return int(text.split()[-1], 16)


class ForkServerKilled(Fault):
    """The fork server is killed, and then a worker, which needs another fork server."""

    name = "fork-server-killed"

    def happen(self, service: ServiceProcess) -> None:
        """Kill both, twice."""
        for _ in range(2):
            send_signal(service.fork_servers, signal.SIGKILL)
            send_signal(service.workers[:1], signal.SIGKILL)
            time.sleep(_CALM_SECONDS)
            service.wait_for_workers()


class ForkServerStopped(Fault):
    """The fork server is stopped by SIGSTOP, and a worker is killed."""

    name = "fork-server-stopped"

    def happen(self, service: ServiceProcess) -> None:
        """Stop one and kill the other; the heartbeat notices."""
        send_signal(service.fork_servers, signal.SIGSTOP)
        send_signal(service.workers[:1], signal.SIGKILL)
        time.sleep(_SILENCE_SECONDS)


class Terminated(Fault):
    """SIGTERM comes in the middle, while every client has a request under way."""

    name = "sigterm"
    allowed = frozenset({"503 not-ready"})
    is_last = True

    def happen(self, service: ServiceProcess) -> None:
        """Wait for a while; the load ends with the signal, see `Experiment`."""
        time.sleep(_CALM_SECONDS)
        del service

    def faults(self, service: ServiceProcess) -> list[str]:
        """The service has to end by itself, and well."""
        code = service.stop()
        return [] if code == 0 else [f"the service ended with exit code {code}, expected 0"]
