"""A measured value, what it should be, and whether it is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Figure", "Goal"]

Bench = TypeVar("Bench")


@dataclass(frozen=True)
class Figure:
    """A measured value, the best seconds of each side, and more numbers of the same run."""

    value: float
    seconds: dict[str, float] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Goal(Generic[Bench]):
    """How to measure a figure, what it says, what it should be, and the paper's value.

    It must be `floor` at least, and `ceiling` at most where less is better.
    """

    measure: Callable[[Bench], Figure]
    title: str
    floor: float | None = None
    aim: float | None = None
    paper: str = "-"
    ceiling: float | None = None

    def missed(self, value: float) -> str:
        """Which limit a value misses, in words; empty if it misses none."""
        # Turned round, so that a value that is no number misses.
        if self.floor is not None and not value >= self.floor:
            return f"short of {self.floor:g}"
        if self.ceiling is not None and not value <= self.ceiling:
            return f"over {self.ceiling:g}"
        return ""
