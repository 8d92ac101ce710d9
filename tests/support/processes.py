"""The real commands in real processes, and a real server to send requests to."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
READY = re.compile(r"ready at (http://\S+)")
DEADLINE_SECONDS = 120


def environment(**variables: str) -> dict[str, str]:
    """Our environment without settings of the developer's own, and of a terminal that is none."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LEAFCODE_") and name not in ("COLUMNS", "LINES")
    }
    return {**kept, "PYTHONPATH": str(ROOT), **variables}


def run(
    *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """`python -m service …` until it ends."""
    return subprocess.run(
        [sys.executable, "-m", "service", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=DEADLINE_SECONDS,
        env=env or environment(),
    )


def children_of(pid: int) -> list[int]:
    """Every process below another one, children of children too."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.parent.name))
    return _below(pid, parents)


def _below(pid: int, parents: dict[int, list[int]]) -> list[int]:
    return [below for child in parents.get(pid, []) for below in (child, *_below(child, parents))]


def is_alive(pid: int) -> bool:
    """Whether a process runs, which one that ended and is not yet waited for does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


class Server:
    """`python -m service serve` on a port that the system chose; `url` once it is ready.

    With `wait=False` it may still be starting. `command` is another way to start it.
    """

    def __init__(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        wait: bool = True,
        stdin: int | None = None,
        command: Sequence[str] = (sys.executable, "-m", "service", "serve", "--port", "0"),
        cwd: Path | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=stdin,
            cwd=cwd,
            stderr=subprocess.PIPE,
            text=True,
            env=env or environment(),
        )
        self._wait = wait
        self.log: list[str] = []
        self.url = ""
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read_log, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        if not self._wait:
            return self
        assert self._is_ready.wait(DEADLINE_SECONDS)
        assert self.url, self.log
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, unless it has ended, and wait; the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if match := READY.search(line):
                self.url = match[1]
                self._is_ready.set()
        self._is_ready.set()


def until(condition: Callable[[], bool]) -> None:
    """Look again and again, but not for ever."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def workers_of(server: Server) -> list[int]:
    """The processes below the fork server; none while all of them are being replaced."""
    return [pid for child in children_of(server.process.pid) for pid in children_of(child)]
