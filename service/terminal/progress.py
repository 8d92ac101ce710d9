"""How far a command is: one line on a terminal that renews itself and is gone at the end."""

import shutil
import time
from collections.abc import Callable
from typing import TextIO

__all__ = ["Progress"]

_ERASE_LINE = "\r\x1b[K"
_PAUSE_SECONDS = 0.1


class Progress:
    """Counts images of `total`; writes nothing to a stream that is no terminal."""

    def __init__(
        self, total: int, stream: TextIO, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._total = total
        self._stream = stream
        self._on_terminal = total > 1 and stream.isatty()
        self._clock = clock
        self._began = self._last = clock()
        self._done = 0
        self._line = ""

    def erase(self) -> None:
        """Make room for a line of the result."""
        if self._line:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()

    def advance(self) -> None:
        """One more image is done: show the line again, renewed if the last one is old."""
        self._done += 1
        if not self._on_terminal:
            return
        now = self._clock()
        if self._done == 1:
            self._last = now  # the rate of the first image is that of starting processes
        elif now - self._last >= _PAUSE_SECONDS:
            self._last, self._line = now, self._tell(now - self._began)
        if self._line:
            self._stream.write(f"{_ERASE_LINE}{self._line}")
            self._stream.flush()

    def _tell(self, seconds: float) -> str:
        rate = self._done / seconds
        left = (self._total - self._done) / rate
        line = f"{self._done} of {self._total} images, {rate:.1f} a second, {left:.0f} s left"
        # A wrapped line could not be erased.
        return line[: shutil.get_terminal_size().columns - 1]
