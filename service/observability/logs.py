"""One line per event: JSON for machines, plain text on a terminal.

Every logger of the process ends here, uvicorn's too, so that all lines have one shape.
What a client wrote may stand in a message; control characters are escaped, so that it
can neither forge a line nor talk to a terminal. Bodies are never logged.
"""

import asyncio
import json
import logging
import logging.config
import sys
import time
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, TextIO

from pydantic_core import to_json

from service.observability.line_writer import LineWriter

__all__ = [
    "JsonLines",
    "LineHandler",
    "TextLines",
    "dropped_lines",
    "log_config",
    "start_logging",
]

# How long a line may wait for others, and how many may wait.
_KEPT_SECONDS = 0.1
_MAX_KEPT = 200

# C0 and C1 controls, delete, and the line separators of Unicode.
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_ESCAPED = {code: ascii(chr(code))[1:-1] for code in _CONTROLS}


class JsonLines(logging.Formatter):
    """Each record as one JSON object; its `fields`, if it has any, are members."""

    def format(self, record: logging.LogRecord) -> str:
        """One line: whatever could end it is escaped."""
        line: dict[str, object] = {
            "time": f"{_utc(int(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _dumps(line)


class TextLines(logging.Formatter):
    """Time, level and message, and a traceback indented below."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or more for a traceback, which nobody can mistake for another record."""
        line = f"{_local(int(record.created))} {record.levelname} {_escaped(record.getMessage())}"
        if record.exc_info:
            for row in self.formatException(record.exc_info).splitlines():
                line += f"\n    | {_escaped(row)}"
        return line


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines to standard error: at once, or on an event loop some at a time.

    Formatting and writing a line while the caches are cold with other work takes twice as
    long as in a row. Warnings and errors, and all that comes before them, are written at once.
    In a process with an event loop they are `queued`, so that nobody waits for a reader.
    """

    def __init__(self, *, queued: bool = False) -> None:
        super().__init__(sys.stderr)
        self._kept: list[logging.LogRecord] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writer = LineWriter(sys.stderr.fileno(), self._tell_lost) if queued else None

    @property
    def dropped(self) -> int:
        """Lines that were not written because too many waited."""
        return self._writer.dropped if self._writer is not None else 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record for a moment if an event loop runs here, else write it."""
        self._kept.append(record)
        if record.levelno >= logging.WARNING or len(self._kept) >= _MAX_KEPT:
            self.flush()
        elif self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self.flush()
            else:
                self._timer = loop.call_later(_KEPT_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what is kept."""
        with self.lock or nullcontext():
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            kept, self._kept = self._kept, []
            try:
                self._write([self.format(record) for record in kept])
            except Exception:  # noqa: BLE001
                for record in kept[:1]:
                    self.handleError(record)

    def close(self) -> None:
        """Write what is kept, at the end of the process."""
        self.flush()
        if self._writer is not None:
            self._writer.drain()
        super().close()

    def _write(self, lines: list[str]) -> None:
        if not lines:
            return
        if self._writer is not None:
            self._writer.write(lines)
        else:
            self.stream.write("".join([f"{line}\n" for line in lines]))
            self.stream.flush()

    def _tell_lost(self, count: int) -> str:
        arguments = (count,)
        line = "%d lines of the log were lost: standard error was not read in time, or full"
        name, level = __name__, logging.WARNING
        return self.format(logging.LogRecord(name, level, "", 0, line, arguments, None))


def dropped_lines() -> int:
    """Lines of this process that nobody will see, because standard error was not read."""
    handlers = logging.getLogger().handlers
    return sum(handler.dropped for handler in handlers if isinstance(handler, LineHandler))


def log_config(level: str, format_: str, *, queued: bool = False) -> dict[str, Any]:
    """Every record to standard error, as plain values for `logging.config.dictConfig`.

    The format is `json`, `text`, or `auto`: text on a terminal, else JSON. Whoever logs never
    waits for a reader if lines are `queued`.
    """
    plain = format_ == "text" or (format_ == "auto" and sys.stderr.isatty())
    lines = TextLines if plain else JsonLines
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": f"{__name__}.{lines.__name__}"}},
        "handlers": {
            "stderr": {
                "()": f"{__name__}.{LineHandler.__name__}",
                "formatter": "lines",
                "queued": queued,
            }
        },
        "root": {"level": level.upper(), "handlers": ["stderr"]},
        # Its messages repeat ours, except for warnings.
        "loggers": {"uvicorn": {"level": "WARNING"}},
    }


def start_logging(level: str, format_: str = "text", *, queued: bool = False) -> None:
    """Send every record of this process to standard error; see `log_config`."""
    logging.config.dictConfig(log_config(level, format_, queued=queued))
    # Neither format shows them, and to find them out takes longer than to format a line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _dumps(line: dict[str, object]) -> str:
    # Four times as fast as `json`, but it leaves the line separators of Unicode as they are.
    try:
        text = to_json(line, fallback=str).decode()
    except ValueError:
        text = ""  # lone surrogates
    return text if text and text.isascii() else json.dumps(line, default=str)


@lru_cache(maxsize=1)
def _local(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))


@lru_cache(maxsize=1)
def _utc(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", {})
    return fields if isinstance(fields, dict) else {}


def _escaped(text: str) -> str:
    return text.translate(_ESCAPED)
