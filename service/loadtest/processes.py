"""`python -m service serve` as a process group of its own, and who is who in it.

The service says `ready at http://…` on standard error. The children of a front end are fork
servers; all others in its group are workers, also those whose fork server has died. The first
process is the front end, or the parent of several.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from service.loadtest.errors import LoadTestError
from service.loadtest.request import Target, parse_url

__all__ = ["ServiceProcess", "send_signal"]

_READY = re.compile(r"ready at (http://\S+)")
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.01
_CALL_SECONDS = 30.0
# A worker that hangs while it loads its models is replaced after a minute.
_RECOVERY_SECONDS = 90.0
_LAST_LINES = 5
_PROC = Path("/proc")
_ROOT = Path(__file__).parents[2]


class ServiceProcess:
    """A service of the model repository `models` that is ready; stopped at the end of the block.

    `flags` are further arguments of `serve`, or of another `command` like it, a module and its
    arguments; `environment` further variables. The log goes to the file `log`, or to one that is
    deleted in the end.
    """

    target: Target

    def __init__(
        self,
        models: Path,
        *flags: str,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        command: Sequence[str] = ("service", "serve"),
    ) -> None:
        self._models = models
        self._flags = flags
        self._environment = environment or {}
        self._log_path = log
        self._command = command

    def __enter__(self) -> Self:
        # A file, because somebody would have to read a pipe while the service is under load.
        self._log: IO[str] = (
            cast("IO[str]", tempfile.NamedTemporaryFile("w+", prefix="leafcode-", suffix=".log"))
            if self._log_path is None
            else self._log_path.open("w+")
        )
        self.process = subprocess.Popen(  # noqa: S603
            [
                *(sys.executable, "-m", *self._command, "--port", "0"),
                *("--models", str(self._models), *self._flags),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env={**_inherited(), **self._environment},
            process_group=0,
        )
        try:
            self.target = self._wait_until_ready(time.monotonic() + _START_SECONDS)
        except BaseException:
            self.stop()
            self._log.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._log.close()

    @property
    def front_ends(self) -> list[int]:
        """The process ids of the front ends that are alive; one of them is all of it, mostly."""
        children = [pid for pid, parent in self._group() if parent == self.process.pid]
        return [pid for pid in children if _is_front_end(pid)] or [self.process.pid]

    @property
    def fork_servers(self) -> list[int]:
        """The process id of each front end's fork server, unless it is being replaced."""
        front_ends = self.front_ends
        return [
            pid for pid, parent in self._group() if parent in front_ends and pid not in front_ends
        ]

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers that are alive, oldest first."""
        others = {self.process.pid, *self.front_ends}
        return sorted(
            pid for pid, parent in self._group() if pid not in others and parent not in others
        )

    @property
    def processes(self) -> list[int]:
        """The process ids of all of it that is alive."""
        return sorted(pid for pid, _ in self._group())

    @property
    def log_text(self) -> str:
        """What it has logged so far."""
        return Path(self._log.name).read_text("utf-8", "replace")

    def call(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and document of the answer to a GET."""
        address, prefix = self.target.address, self.target.prefix
        with contextlib.closing(
            http.client.HTTPConnection(*address, timeout=_CALL_SECONDS)
        ) as connection:
            connection.request("GET", f"{prefix}{path}")
            response = connection.getresponse()
            return response.status, json.load(response)

    def has_all_workers(self) -> bool:
        """Whether all workers are in service."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.call("/readyz?strict=true")[0] == HTTPStatus.OK
        return False

    def wait_for_workers(self) -> None:
        """Return when all workers are in service; raises `LoadTestError` if they do not come."""
        end = time.monotonic() + _RECOVERY_SECONDS
        while not self.has_all_workers():
            if time.monotonic() > end:
                raise LoadTestError(f"not all workers were ready within {_RECOVERY_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> int:
        """Have it stop, unless it has; its exit code, minus the signal."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            send_signal(self.processes, signal.SIGKILL)
            return self.process.wait()

    def _group(self) -> Iterator[tuple[int, int]]:
        """Processes of its group that run, each with its parent."""
        for entry in _PROC.glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                state, parent, group = entry.read_text().rpartition(")")[2].split()[:3]
                # One that ended and is not yet waited for does not run.
                if int(group) == self.process.pid and state not in "ZX":
                    yield int(entry.parent.name), int(parent)

    def _wait_until_ready(self, deadline: float) -> Target:
        while not (ready := _READY.search(self.log_text)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                last = " / ".join(self.log_text.splitlines()[-_LAST_LINES:])
                raise LoadTestError(f"the service did not start: {last}")
            time.sleep(_POLL_SECONDS)
        return parse_url(ready[1])


def _is_front_end(pid: int) -> bool:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        return b"service.front_ends.front_end" in (_PROC / str(pid) / "cmdline").read_bytes()
    return False


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes; those that have ended meanwhile need none."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _inherited() -> dict[str, str]:
    """This environment without settings of the service, and the package on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEAFCODE_")}
    return {**kept, "PYTHONPATH": str(_ROOT)}
