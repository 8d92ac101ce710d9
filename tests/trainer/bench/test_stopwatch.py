"""The stopwatch by a clock that tests wind up, and what is made of its times."""

from collections.abc import Callable, Iterator

import pytest

from trainer.bench.goals import Figure
from trainer.bench.spread import Spread
from trainer.bench.stopwatch import Duration, Timings, side_by_side


class Clock:
    """Time passes only when a workload says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def workload(self, name: str, durations: Iterator[float]) -> Callable[[], None]:
        def run() -> None:
            self.calls.append(name)
            self.now += next(durations)

        return run


def test_workloads_take_turns_after_one_call_that_does_not_count() -> None:
    clock = Clock()
    workloads = {
        "a": clock.workload("a", iter([1, 5, 3, 4])),
        "b": clock.workload("b", iter([1, 2, 9, 2.5])),
    }
    timings = side_by_side(workloads, Duration(rounds=3, seconds=0, turn=0), clock)
    assert clock.calls == ["a", "b"] * 4
    assert timings.rounds == ({"a": 5, "b": 2}, {"a": 3, "b": 9}, {"a": 4, "b": 2.5})


def test_rounds_go_on_until_the_time_is_up() -> None:
    clock = Clock()
    workloads = {
        "a": clock.workload("a", iter([1.0] * 9)),
        "b": clock.workload("b", iter([1.0] * 9)),
    }
    side_by_side(workloads, Duration(rounds=1, seconds=5, turn=0), clock)
    assert clock.calls == ["a", "b"] * 4


def test_a_short_workload_runs_again_within_its_turn_and_its_fastest_call_counts() -> None:
    clock = Clock()
    workloads = {
        "short": clock.workload("short", iter([4, 4, 3, 2, 1.5])),
        "long": clock.workload("long", iter([9, 9])),
    }
    timings = side_by_side(workloads, Duration(rounds=1, seconds=0, turn=8), clock)
    assert clock.calls == ["short", "long", "short", "short", "short", "long"]
    assert timings.rounds == ({"short": 2, "long": 9},)


TIMINGS = Timings(({"a": 6, "b": 2}, {"a": 30, "b": 3}, {"a": 4, "b": 4}))


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    # Not the ratio of the medians, 2, nor that of the best times, also 2.
    assert TIMINGS.ratio("a", "b") == Spread(median=3, lowest=1, highest=10, rounds=3)
    figure = Figure.ratio(TIMINGS, "a", "b")
    assert figure.value == 3
    assert figure.seconds == {"a": Spread(6, 4, 30, 3), "b": Spread(3, 2, 4, 3)}


def test_rates_and_differences_are_those_of_the_rounds_too() -> None:
    assert TIMINGS.rate("b").median == pytest.approx(1 / 3)
    assert TIMINGS.difference("a", "b") == Spread(4, 0, 27, 3)


def test_numbered_workloads_are_averaged_within_each_round() -> None:
    timings = Timings(({"a 0": 1, "a 1": 3, "b": 5}, {"a 0": 2, "a 1": 4, "b": 6})).averaged()
    assert timings.rounds == ({"a": 2, "b": 5}, {"a": 3, "b": 6})
