"""A measured value, what it should be, and whether it is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from trainer.bench.spread import Spread
from trainer.bench.stopwatch import Timings

__all__ = ["Figure", "Goal"]

Bench = TypeVar("Bench")


@dataclass(frozen=True)
class Figure:
    """A measured value over rounds, seconds of both sides, and more numbers of the same run."""

    spread: Spread
    seconds: dict[str, Spread] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """What is judged: the median."""
        return self.spread.median

    @classmethod
    def ratio(cls, timings: Timings, numerator: str, denominator: str) -> "Figure":
        """One workload's time beside another's: a ratio in every round, then their median."""
        return cls(
            timings.ratio(numerator, denominator),
            {name: timings.seconds(name) for name in (numerator, denominator)},
        )


@dataclass(frozen=True)
class Goal(Generic[Bench]):
    """How to measure a figure, what it says, what it should be, and the paper's value.

    A figure must be `floor` at least or, where less is better, `ceiling` at most.
    """

    measure: Callable[[Bench], Figure]
    title: str
    floor: float | None = None
    aim: float | None = None
    paper: str = "-"
    ceiling: float | None = None

    @property
    def limit(self) -> str:
        """The floor or the ceiling, in words; empty if there is neither."""
        if self.floor is not None:
            return f"≥ {self.floor:g}"
        return "" if self.ceiling is None else f"≤ {self.ceiling:g}"

    def missed(self, value: float) -> str:
        """Which limit a value misses, in words; empty if it misses none."""
        # Negated, so that NaN misses.
        if self.floor is not None and not value >= self.floor:
            return f"short of {self.floor:g}"
        if self.ceiling is not None and not value <= self.ceiling:
            return f"over {self.ceiling:g}"
        return ""

    def reaches_aim(self, value: float) -> bool:
        """Whether a value is as good as the aim, or better; true where there is none."""
        if self.aim is None:
            return True
        return value >= self.aim if self.ceiling is None else value <= self.aim

    def share(self, value: float) -> float | None:
        """A value relative to what must be, or to the aim: 1 just reaches it, more is better."""
        limit = self.ceiling or self.floor or self.aim
        if limit is None:
            return None
        if self.ceiling is None:
            return value / limit
        # A cost too small for the clock may come out as nothing.
        return limit / value if value > 0 else float("inf")
