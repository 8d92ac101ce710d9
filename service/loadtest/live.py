"""A load test while it goes on: a line that renews itself on a terminal, else one now and then."""

import shutil
import time
from collections.abc import Callable
from typing import TextIO

from service.loadtest.histogram import Latencies
from service.loadtest.load import Exchange

__all__ = ["LiveDisplay"]

_TERMINAL_SECONDS = 0.5
_PLAIN_SECONDS = 5.0
_BAR = 12
_ERASE_LINE = "\r\x1b[K"


class LiveDisplay:
    """Writes rate and latencies since the last line, and the errors so far.

    `whole` is how long the run should take in seconds, if anybody knows.
    """

    def __init__(
        self,
        stream: TextIO,
        whole: float | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._stream = stream
        self._on_terminal = stream.isatty()
        self._pause = _TERMINAL_SECONDS if self._on_terminal else _PLAIN_SECONDS
        self._whole = whole
        self._clock = clock
        self._began = self._last = clock()
        self._seen = 0
        self._errors = 0

    def __call__(self, exchanges: list[Exchange]) -> None:
        """Show what is new among the exchanges, unless the last line is younger than a pause."""
        now = self._clock()
        # A tenth less, because the calls come at the same pace and none may be missed by luck.
        if now - self._last < 0.9 * self._pause:
            return
        new = exchanges[self._seen :]
        self._errors += sum(item.status != 200 for item in new)
        line = self._line(new, now)
        self._seen, self._last = len(exchanges), now
        if self._on_terminal:
            # A wrapped line could not be erased; Ctrl-C is shown as two letters.
            width = shutil.get_terminal_size().columns - 3
            self._stream.write(f"{_ERASE_LINE}{line[:width]}")
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._on_terminal:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()

    def _line(self, new: list[Exchange], now: float) -> str:
        latencies = Latencies(item.seconds for item in new)
        rate = len(new) / (now - self._last)
        parts = [f"{now - self._began:5.0f} s", self._bar(now - self._began), f"{rate:7.1f}/s"]
        if new:
            quantiles = latencies.quantiles()
            parts += [f"p50 {quantiles.p50_ms:.1f} ms", f"p99 {quantiles.p99_ms:.1f} ms"]
        parts.append(f"{self._errors} errors")
        return "  ".join(part for part in parts if part)

    def _bar(self, elapsed: float) -> str:
        if not (self._whole and self._on_terminal):
            return ""
        done = min(_BAR, round(_BAR * elapsed / self._whole))
        return f"[{'=' * done}{' ' * (_BAR - done)}]"
