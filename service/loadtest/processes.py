"""`python -m service serve` as a process of its own, and the process ids of its workers.

The service says `ready at http://…` on standard error. Its only child is the fork server,
whose children are the workers.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from service.loadtest.errors import LoadTestError
from service.loadtest.request import Target, parse_url

__all__ = ["ServiceProcess"]

_READY = re.compile(r"ready at (http://\S+)")
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.01
_LAST_LINES = 5
_PROC = Path("/proc")
_ROOT = Path(__file__).parents[2]


class ServiceProcess:
    """A service of the model repository `models` that is ready; stopped at the end of the block.

    `flags` are further arguments of `serve`.
    """

    target: Target

    def __init__(self, models: Path, *flags: str) -> None:
        self._models = models
        self._flags = flags

    def __enter__(self) -> Self:
        # A file, because somebody would have to read a pipe while the service is under load.
        self._log = tempfile.NamedTemporaryFile("w+", prefix="leafcode-", suffix=".log")
        self.process = subprocess.Popen(  # noqa: S603
            [
                *(sys.executable, "-m", "service", "serve", "--port", "0"),
                *("--models", str(self._models), *self._flags),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env=_environment(),
        )
        try:
            self.target = self._wait_until_ready(time.monotonic() + _START_SECONDS)
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
    def workers(self) -> list[int]:
        """The process ids of the workers that are alive, oldest first."""
        below = (pid for child in _children(self.process.pid) for pid in _children(child))
        return sorted(filter(_is_alive, below))

    def _wait_until_ready(self, deadline: float) -> Target:
        log = Path(self._log.name)
        while not (ready := _READY.search(log.read_text("utf-8", "replace"))):
            if self.process.poll() is not None or time.monotonic() > deadline:
                last = " / ".join(log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:])
                raise LoadTestError(f"the service did not start: {last}")
            time.sleep(_POLL_SECONDS)
        return parse_url(ready[1])

    def _stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()


def _children(pid: int) -> list[int]:
    """The children of all threads of a process."""
    children: list[int] = []
    for file in (_PROC / str(pid) / "task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, file.read_text().split())
    return children


def _is_alive(pid: int) -> bool:
    """Whether a process runs, which one that ended and is not yet waited for does not."""
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _environment() -> dict[str, str]:
    """This environment without settings of the service, and the package on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEAFCODE_")}
    return {**kept, "PYTHONPATH": str(_ROOT)}
