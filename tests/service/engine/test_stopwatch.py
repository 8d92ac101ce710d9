"""Every stage of an image is timed under its name."""

import time
from pathlib import Path

import pytest

from service.engine import STAGES, Engine, Stopwatch
from service.engine.stopwatch import Stage


def test_scores_time_every_stage_once(drawn_images: Path, trained_bundle: Path) -> None:
    image = next(drawn_images.glob("*/*"))
    watch = Stopwatch()
    engine, data = Engine.load(trained_bundle), image.read_bytes()
    engine.scores(data, watch=watch)
    assert tuple(watch.seconds) == STAGES[:-1]
    engine.explained_scores(data, watch=watch)
    assert tuple(watch.seconds) == STAGES
    assert all(seconds >= 0 for seconds in watch.seconds.values())


def test_laps_of_one_stage_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10.0, 11.0, 13.0, 17.0, 25.0])
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: next(moments))
        watch = Stopwatch()
        stages: tuple[Stage, ...] = ("sift", "coding", "sift", "coding")
        for stage in stages:
            watch.lap(stage)
    assert watch.seconds == {"sift": 1 + 4, "coding": 2 + 8}


def test_a_lap_is_shared_by_stages_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10.0, 18.0, 20.0])
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: next(moments))
        watch = Stopwatch()
        watch.share({"sift": 100, "coding": 300, "pooling": 0})
        watch.lap("pooling")
    assert watch.seconds == {"sift": 2, "coding": 6, "pooling": 2}


def test_a_lap_without_parts_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10.0, 18.0, 20.0])
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: next(moments))
        watch = Stopwatch()
        watch.share({"sift": 0, "coding": 0})
        watch.lap("pooling")
    assert watch.seconds == {"pooling": 10}
