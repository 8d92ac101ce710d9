"""The line that says how far a command is."""

import io
from collections.abc import Iterator

import pytest

from service.terminal.progress import Progress

ERASE = "\r\x1b[K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def clock(*moments: float) -> Iterator[float]:
    return iter(moments)


def test_the_line_is_renewed_now_and_then_and_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal, moments = Terminal(), clock(0.0, 0.05, 2.0, 2.01)
    progress = Progress(10, terminal, lambda: next(moments))
    for _ in range(3):
        progress.erase()
        progress.advance()
    progress.erase()
    line = "2 of 10 images, 1.0 a second, 8 s left"
    assert terminal.getvalue() == f"{ERASE}{line}{ERASE}{ERASE}{line}{ERASE}"


def test_the_line_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    terminal, moments = Terminal(), clock(0.0, 0.5, 1.0)
    progress = Progress(10, terminal, lambda: next(moments))
    progress.advance()
    progress.advance()
    assert terminal.getvalue() == f"{ERASE}2 of 10 ima"


def test_a_file_gets_no_progress() -> None:
    stream = io.StringIO()
    progress = Progress(10, stream, lambda: 1.0)
    progress.advance()
    progress.erase()
    assert stream.getvalue() == ""
