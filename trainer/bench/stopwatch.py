"""Side by side: several workloads in turns on the same cores, their times round by round.

Machines are shared and noisy, so a speed is a ratio of times that were taken one just after
the other: what disturbs one side disturbs the other. The ratio of every round is taken and
the median over the rounds counts. Which clock runs is the caller's choice.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean

from trainer.bench.spread import Spread

__all__ = ["Clock", "Duration", "Timings", "no_garbage_collection", "side_by_side"]

Clock = Callable[[], float]


@dataclass(frozen=True)
class Duration:
    """The least that a comparison takes: rounds, and seconds in all.

    In its turn a workload runs again until `turn` seconds have passed, so that a short one
    is not always timed with the caches as a long one left them.
    """

    rounds: int
    seconds: float
    turn: float


@dataclass(frozen=True)
class Timings:
    """Seconds of every workload by its name, in every round."""

    rounds: tuple[Mapping[str, float], ...]

    def seconds(self, name: str) -> Spread:
        """The time of one workload."""
        return Spread.of(times[name] for times in self.rounds)

    def ratio(self, numerator: str, denominator: str) -> Spread:
        """The time of one workload in times of another, of the same round each."""
        return Spread.of(times[numerator] / times[denominator] for times in self.rounds)

    def rate(self, name: str) -> Spread:
        """How often one workload runs in a second."""
        return Spread.of(1 / times[name] for times in self.rounds)

    def difference(self, name: str, part: str) -> Spread:
        """The time of one workload without that of another that it contains."""
        return Spread.of(times[name] - times[part] for times in self.rounds)

    def averaged(self) -> "Timings":
        """Workloads that were called `<name> <number>`, as one called by the name: their mean."""
        return Timings(tuple(_averaged(times) for times in self.rounds))


def _averaged(times: Mapping[str, float]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for name, seconds in times.items():
        stem, _, number = name.rpartition(" ")
        groups.setdefault(stem if number.isdecimal() else name, []).append(seconds)
    return {name: fmean(group) for name, group in groups.items()}


def side_by_side(
    workloads: Mapping[str, Callable[[], object]], duration: Duration, clock: Clock
) -> Timings:
    """The time of every workload in every round, after one call that does not count."""
    for run in workloads.values():
        run()
    rounds: list[dict[str, float]] = []
    with no_garbage_collection():
        started = clock()
        while len(rounds) < duration.rounds or clock() - started < duration.seconds:
            turns = {name: _turn(run, duration.turn, clock) for name, run in workloads.items()}
            rounds.append(turns)
    return Timings(tuple(rounds))


def _turn(run: Callable[[], object], seconds: float, clock: Clock) -> float:
    """The fastest call of a turn: the one that was interrupted least."""
    best, end = float("inf"), clock() + seconds
    while True:
        before = clock()
        run()
        after = clock()
        best = min(best, after - before)
        if after >= end:
            return best


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """What is timed inside is not interrupted by the collector."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
