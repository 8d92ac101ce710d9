"""Faults of the machine: no memory, no disk, no file handles, another time of day."""

import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from service.loadtest.chaos.fault import Fault, NotPossibleError, Surroundings
from service.loadtest.processes import ServiceProcess, send_signal
from service.loadtest.soak import WORKER_LOST
from service.loadtest.uploads import large_form, large_image, post

__all__ = ["ClockJumps", "HandlesExhausted", "LogFull", "MemoryShort", "ScratchFull", "SpoolFull"]

_CALM_SECONDS = 1.0
_DISK_BYTES = 32_000_000
# What a worker may have beside what it has: too little for a large image, enough for others.
_SPARE_BYTES = 48_000_000
_LARGE_IMAGES = 6
_SPARE_HANDLES = 6
_CONNECTIONS = 64
# Of the wall clock, in seconds: a day, an hour and a second, there and back.
_JUMPS = (86_400, 0, -86_400, 3_600, -3_600, 1, -1, 0)
_FAKETIME = "faketime/libfaketimeMT.so.1"


class MemoryShort(Fault):
    """Workers may have only 48 MB more, and large images come."""

    name = "memory-short"
    allowed = frozenset({WORKER_LOST})

    def __init__(self) -> None:
        super().__init__()
        self._statuses: list[int] = []

    def happen(self, service: ServiceProcess) -> None:
        """Limit every worker again and again, since they are replaced."""
        image = large_image()
        for _ in range(_LARGE_IMAGES):
            for pid in service.workers:
                with suppress(OSError):
                    _limit_memory(pid)
            self._statuses.append(post(service.target, image, "image/png"))
            time.sleep(_CALM_SECONDS / 2)
        for pid in service.workers:  # their replacements have no limit
            send_signal([pid], signal.SIGKILL)
            service.wait_for_workers()

    def faults(self, service: ServiceProcess) -> list[str]:
        """A large image that is in order may find no memory, but is not the sender's fault."""
        wrong = sorted(set(self._statuses) - {200, 503})
        return [
            *super().faults(service),
            *(f"a large image was answered with status {status}" for status in wrong),
        ]


def _limit_memory(pid: int) -> None:
    """Let the data of a process, private mappings included, grow by a little."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmData:"))
    limit = int(line.split()[1]) * 1024 + _SPARE_BYTES
    resource.prlimit(pid, resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


@contextmanager
def _small_disk() -> Iterator[Path]:
    """A file system of its own with room for 32 MB."""
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None or os.geteuid() != 0:
        raise NotPossibleError("mounting a small file system needs root")
    with tempfile.TemporaryDirectory(prefix="leafcode-chaos-") as folder:
        command = [mount, "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", folder]
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise NotPossibleError(f"a small file system cannot be mounted: {done.stderr!r}")
        try:
            yield Path(folder)
        finally:
            subprocess.run([unmount, "--lazy", folder], check=True)  # noqa: S603


def _fill(disk: Path) -> Path:
    """A file that takes all room there is."""
    balloon = disk / "balloon"
    with balloon.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return balloon


class LogFull(Fault):
    """The disk of the log is full for a while."""

    name = "log-full"

    @contextmanager
    def prepared(self, models: Path) -> Iterator[Surroundings]:
        """A log on a small disk."""
        with _small_disk() as self._disk:
            yield Surroundings(models, log=self._disk / "log")

    def happen(self, service: ServiceProcess) -> None:
        """Fill it, and kill a worker, about which there is something to log."""
        balloon = _fill(self._disk)
        time.sleep(_CALM_SECONDS)
        send_signal(service.workers[:1], signal.SIGKILL)
        time.sleep(_CALM_SECONDS)
        balloon.unlink()
        self._size = (self._disk / "log").stat().st_size

    def faults(self, service: ServiceProcess) -> list[str]:
        """Lines have to come again once there is room."""
        grown = (self._disk / "log").stat().st_size > self._size
        return super().faults(service) + ([] if grown else ["nothing was logged afterwards"])


class _TemporaryFull(Fault):
    """A fault of a service whose temporary folder is on a small disk."""

    @contextmanager
    def prepared(self, models: Path) -> Iterator[Surroundings]:
        """A temporary folder with room in it at first: a full one would be passed over."""
        with _small_disk() as self.disk:
            yield Surroundings(models, environment={"TMPDIR": str(self.disk)})


class SpoolFull(_TemporaryFull):
    """The disk of temporary files is full while forms with large files come."""

    name = "spool-full"

    def __init__(self) -> None:
        super().__init__()
        self._statuses: list[int] = []

    def happen(self, service: ServiceProcess) -> None:
        """Send forms of several megabytes, one of them before the disk is full."""
        content_type, form = large_form()
        for _ in range(_LARGE_IMAGES):
            self._statuses.append(post(service.target, form, content_type))
            _fill(self.disk)

    def faults(self, service: ServiceProcess) -> list[str]:
        """Forms need no disk."""
        wrong = sorted(set(self._statuses) - {200})
        return [
            *super().faults(service),
            *(f"a form was answered with status {status}" for status in wrong),
        ]


class ScratchFull(_TemporaryFull):
    """The disk of temporary files is full while fork server and workers are replaced."""

    name = "scratch-full"
    allowed = frozenset({WORKER_LOST})

    def happen(self, service: ServiceProcess) -> None:
        """Kill all but the service itself, one by one."""
        _fill(self.disk)
        send_signal(service.fork_servers, signal.SIGKILL)
        for pid in service.workers:
            send_signal([pid], signal.SIGKILL)
            time.sleep(_CALM_SECONDS)
            service.wait_for_workers()


class HandlesExhausted(Fault):
    """No process may open further files while connections come and a worker is killed."""

    name = "handles-exhausted"

    def happen(self, service: ServiceProcess) -> None:
        """Lower the limit to what is open, and a few; connect; kill a worker; raise it again."""
        before = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in service.processes}
        for pid, (_, hard) in before.items():
            in_use = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use + _SPARE_HANDLES, hard))
        with ExitStack() as opened:
            for _ in range(_CONNECTIONS):
                with suppress(OSError):
                    opened.enter_context(socket.create_connection(service.target.address, 1.0))
            send_signal(service.workers[:1], signal.SIGKILL)
            time.sleep(2 * _CALM_SECONDS)
        for pid, limits in before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


class ClockJumps(Fault):
    """The time of day jumps by a day, an hour and a second, there and back."""

    name = "clock-jumps"

    @contextmanager
    def prepared(self, models: Path) -> Iterator[Surroundings]:
        """A clock that reads its offset from a file."""
        library = _find_library()
        with tempfile.TemporaryDirectory(prefix="leafcode-chaos-") as folder:
            self._offset = Path(folder, "offset")
            self._set(0)
            environment = {
                "LD_PRELOAD": str(library),
                "FAKETIME_TIMESTAMP_FILE": str(self._offset),
                "FAKETIME_CACHE_DURATION": "1",
                # As in a real jump: the monotonic clock goes on.
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
            yield Surroundings(models, environment=environment)

    def _set(self, seconds: int) -> None:
        """Replace the offset at once, so that nobody reads half of it."""
        staging = self._offset.with_suffix(".new")
        staging.write_text(f"{seconds:+d}\n")
        staging.replace(self._offset)

    def happen(self, service: ServiceProcess) -> None:
        """Jump; kill a worker in between, since replacements wait by a clock."""
        for seconds in _JUMPS:
            self._set(seconds)
            time.sleep(_CALM_SECONDS)
        send_signal(service.workers[:1], signal.SIGKILL)


def _find_library() -> Path:
    for folder in (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib", "/usr/lib64"):
        if (library := Path(folder, _FAKETIME)).exists():
            return library
    raise NotPossibleError("another clock needs the Debian package libfaketime")
