"""Side by side: several workloads in turns on the same cores, the best time of each.

Machines are shared and noisy, so a speed is a ratio of times that were taken in one run,
interleaved: what disturbs one side disturbs the other. The best time is the one that was
disturbed least. Which clock runs is the caller's choice.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Clock", "Patience", "no_garbage_collection", "side_by_side"]

Clock = Callable[[], float]


@dataclass(frozen=True)
class Patience:
    """The least that a comparison takes: rounds, and seconds in all.

    In its turn a workload runs again until `turn` seconds have passed, so that a short one
    is not always timed with the caches as a long one left them.
    """

    rounds: int
    seconds: float
    turn: float


def side_by_side(
    workloads: Mapping[str, Callable[[], object]], patience: Patience, clock: Clock
) -> dict[str, float]:
    """Seconds of the fastest call of each workload, after one call that does not count."""
    for run in workloads.values():
        run()
    best = dict.fromkeys(workloads, float("inf"))
    rounds = 0
    with no_garbage_collection():
        started = clock()
        while rounds < patience.rounds or clock() - started < patience.seconds:
            for name, run in workloads.items():
                best[name] = min(best[name], _turn(run, patience.turn, clock))
            rounds += 1
    return best


def _turn(run: Callable[[], object], seconds: float, clock: Clock) -> float:
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
