"""The median of several rounds, and how far the rounds are apart."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Spread"]


@dataclass(frozen=True)
class Spread:
    """What is measured counts by its median; lowest and highest tell how steady it is."""

    median: float
    lowest: float
    highest: float
    rounds: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The spread of one value or more."""
        known = list(values)
        return cls(statistics.median(known), min(known), max(known), len(known))
