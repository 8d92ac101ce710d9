"""Lines to a file descriptor by a thread of its own: whoever logs never waits for whoever reads.

A reader of standard error that stalls fills its pipe, and the next write waits. On the event
loop every request would wait with it. So lines wait here instead, up to a number of bytes; what
comes beyond that is dropped and counted, as are lines that cannot be written, for instance to a
full disk. The number is told once lines get through again.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable

__all__ = ["MAX_WAITING_BYTES", "LineWriter"]

MAX_WAITING_BYTES = 1_000_000
"""Most bytes of lines that wait to be written."""

# Written at a time: a pipe takes so much whole, whatever other processes write to it.
_PIECE = select.PIPE_BUF
# At the end of the process, how long to wait for a reader that takes nothing.
_LAST_SECONDS = 2.0


class LineWriter:
    """Writes lines in their order; `tell_lost` makes the line that says how many were dropped."""

    def __init__(self, descriptor: int, tell_lost: Callable[[int], str]) -> None:
        self.dropped = 0
        """Lines that were never written, since the start."""
        self._descriptor = descriptor
        self._tell_lost = tell_lost
        self._untold = 0
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, lines: Iterable[str]) -> None:
        """Have lines written, or drop them if too many wait; returns at once."""
        with self._changed:
            for line in lines:
                self._add(f"{line}\n".encode("utf-8", "backslashreplace"))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until all is written; but not long for a reader that takes nothing."""
        with self._changed:
            while self._waiting and self._changed.wait(_LAST_SECONDS):
                pass

    def _add(self, line: bytes) -> None:
        if self._waiting + len(line) > MAX_WAITING_BYTES:
            self.dropped += 1
            self._untold += 1
        else:
            self._lines.append(line)
            self._waiting += len(line)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                lines = b"".join(self._lines)
                self._lines.clear()
            through = self._write_all(lines)
            with self._changed:
                if self._untold and through:
                    lost, self._untold = self._untold, 0
                    self._add(f"{self._tell_lost(lost)}\n".encode())

    def _write_all(self, lines: bytes) -> bool:
        """Write lines, or drop those that cannot be written; whether there were none of these."""
        while lines:
            try:
                written = os.write(self._descriptor, _first_piece(lines))
            except BlockingIOError:  # whoever shares the descriptor made it so
                select.select((), (self._descriptor,), ())
                continue
            except OSError:
                self._drop(lines)
                return False
            lines = lines[written:]
            self._take_off(written)
        return True

    def _drop(self, lines: bytes) -> None:
        lost = lines.count(b"\n")
        self.dropped += lost
        self._untold += lost
        self._take_off(len(lines))

    def _take_off(self, size: int) -> None:
        with self._changed:
            self._waiting -= size
            self._changed.notify_all()


def _first_piece(lines: bytes) -> bytes:
    """Whole lines, or the beginning of one that is longer than a piece."""
    return lines[: lines.rfind(b"\n", 0, _PIECE) + 1 or _PIECE]
