"""Stages of a fit: who is charged for which time, by a clock that the tests turn."""

import runpy
import sys
from types import SimpleNamespace

import pytest

from trainer import stages
from trainer.stages import StageRecord, peak_bytes, recording, stage


class Clock:
    """Moves only when it is told to, as does memory; the process works half of the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.peak = 50

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now / 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    parts = SimpleNamespace(monotonic=made.monotonic, process_time=made.process_time)
    monkeypatch.setattr(stages, "time", parts)
    monkeypatch.setattr(stages, "peak_bytes", lambda: made.peak)
    return made


def test_a_stage_inside_another_one_interrupts_it_and_turns_add_up(clock: Clock) -> None:
    with recording() as run:
        clock.now += 1
        with stage("dictionary"):
            clock.now += 2
            with stage("tree"):
                assert run.current == "tree"
                clock.now += 4
            clock.now += 8
        with stage("tree"):
            clock.now += 16
        found = run.until_now()
    seconds = {name: record.seconds for name, record in found.items()}
    assert seconds == {"tree": 20, "dictionary": 10, "other": 1}
    assert list(found) == ["tree", "dictionary", "other"]
    assert found["tree"].cpu_seconds == 10


def test_a_stage_that_fails_is_over(clock: Clock) -> None:
    def lose() -> None:
        clock.now += 3
        raise ValueError("lost")

    with recording() as run:
        with pytest.raises(ValueError, match="lost"), stage("search"):
            lose()
        clock.now += 5
        found = run.until_now()
    assert (found["search"].seconds, found["other"].seconds) == (3, 5)


def test_without_a_recording_a_stage_is_just_its_block() -> None:
    with stage("tree"):
        pass
    with recording() as run:
        pass
    with stage("tree"):
        pass
    assert set(run.until_now()) == {"other"}


def test_a_stage_is_charged_for_the_peak_that_it_raised(clock: Clock) -> None:
    with recording() as run:
        with stage("tree"):
            clock.peak = 70
        with stage("dictionary"):
            pass
        with stage("search"):
            clock.peak = 90
        with stage("tree"):
            pass
        found = run.until_now()
    peaks = {name: record.peak_bytes for name, record in found.items()}
    assert peaks == {"tree": 70, "dictionary": None, "search": 90, "other": 50}


def test_a_record_survives_json() -> None:
    record = StageRecord(1.25, 2.5, peak_bytes())
    assert record.peak_bytes is not None
    assert record.peak_bytes > 10_000_000
    assert StageRecord.from_json(record.to_json()) == record


def test_the_peak_of_memory_is_unknown_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)  # as if it were not there
    on_windows = runpy.run_path(stages.__file__)
    assert on_windows["peak_bytes"]() is None
