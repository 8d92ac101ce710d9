"""How far a fit is said to be, beside a clock that the test turns."""

import logging
import re

import pytest

from trainer import progress, stages
from trainer.progress import FitProgress, duration_text
from trainer.stages import StageName, StageRecording

EXPECTED: dict[StageName, float] = {"tree": 10.0, "dictionary": 30.0, "search": 60.0}


class _Clock:
    """The seconds that both modules see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        for module in (progress, stages):
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now)

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    monkeypatch.setattr(progress, "n_threads", lambda: 2)
    return _Clock(monkeypatch)


def test_before_a_stage_is_over_cores_are_as_fast_as_expected(clock: _Clock) -> None:
    run, fit = StageRecording(), FitProgress(EXPECTED)
    assert fit.estimate(run) == (0.0, 50.0)
    with run.stage("tree"):
        clock.pass_(3)
        assert fit.estimate(run) == pytest.approx((0.06, 47))


def test_the_rest_is_judged_by_the_rate_of_what_is_over(clock: _Clock) -> None:
    run, fit = StageRecording(), FitProgress(EXPECTED)
    with run.stage("tree"):
        clock.pass_(20)
    # Ten expected seconds took twenty.
    assert fit.estimate(run) == pytest.approx((0.1, 180))
    with run.stage("dictionary"):
        clock.pass_(30)
        assert fit.estimate(run) == pytest.approx((0.25, 150))


def test_a_stage_that_takes_longer_than_expected_is_never_done(clock: _Clock) -> None:
    run, fit = StageRecording(), FitProgress(EXPECTED)
    with run.stage("tree"):
        clock.pass_(1e6)
        assert fit.estimate(run) == pytest.approx((0.095, 90.5 / 2))


def test_lines_come_by_tenths_where_there_is_no_terminal(
    clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fit = FitProgress(EXPECTED)
    with fit, stages.recording(fit.update), stages.stage("search"):
        for _ in range(60):
            clock.pass_(0.5)
            stages.come_further()
    assert len(caplog.messages) == 5  # the sixth tenth is never quite done
    for place, message in enumerate(caplog.messages, 1):
        done, left = map(int, re.findall(r"(\d+) % done, about (\d+) s left", message)[0])
        assert 10 * place <= done <= 10 * place + 1
        assert left == pytest.approx(50 - done / 2, abs=1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (180, "3 minutes"), (9000, "2.5 hours")]
)
def test_a_span_is_told_in_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
