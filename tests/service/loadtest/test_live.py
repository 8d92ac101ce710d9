"""The display of a load test that goes on."""

import io

import pytest

from service.loadtest.live import LiveDisplay
from service.loadtest.load import Exchange


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def exchanges(count: int, status: int = 200) -> list[Exchange]:
    return [Exchange(number, 0.0, 0.02, status) for number in range(count)]


def test_a_terminal_has_one_line_that_is_renewed_and_erased_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    now = [0.0]
    terminal = Terminal()
    display = LiveDisplay(terminal, 4.0, clock=lambda: now[0])
    for moment, seen in ((0.1, 1), (0.6, 12), (1.1, 32)):
        now[0] = moment
        display([*exchanges(seen - 1), *exchanges(1, 429)])
    display.end()
    nothing, first, second, erased = terminal.getvalue().split("\r\x1b[K")
    assert nothing == erased == ""
    assert "\n" not in terminal.getvalue()
    assert "[==          ]     20.0/s  p50 20.0 ms  p99 20.0 ms  1 errors" in first
    assert "[===         ]     40.0/s" in second


def test_a_line_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    now = [0.0]
    terminal = Terminal()
    display = LiveDisplay(terminal, 4.0, clock=lambda: now[0])
    now[0] = 1.0
    display(exchanges(9))
    assert len(terminal.getvalue().removeprefix("\r\x1b[K")) == 27


def test_elsewhere_a_line_follows_the_other_every_five_seconds() -> None:
    now = [0.0]
    stream = io.StringIO()
    display = LiveDisplay(stream, 4.0, clock=lambda: now[0])
    for tick in range(1, 21):
        now[0] = tick / 2
        display(exchanges(10 * tick))
    display.end()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "20.0/s" in lines[0]
    assert "\x1b" not in stream.getvalue()
    assert "[" not in stream.getvalue()


def test_a_server_that_keeps_silent_is_shown_as_such() -> None:
    now = [0.0]
    stream = io.StringIO()
    display = LiveDisplay(stream, None, clock=lambda: now[0])
    now[0] = 5.0
    display([])
    assert stream.getvalue().split() == ["5", "s", "0.0/s", "0", "errors"]
