"""Latencies as an HdrHistogram: any number of them in fixed memory, to three digits.

The histogram counts microseconds up to an hour. `hdrhistogram` is in the extra `loadtest`, so
it is imported when the first histogram is made.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from service.loadtest.optional import optional

__all__ = ["Latencies", "Quantiles"]

_MICROSECONDS_AN_HOUR = 3_600_000_000
_DIGITS = 3
_SHARES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class Quantiles:
    """How long so many answers took, in milliseconds."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Latencies:
    """Counts seconds and tells their quantiles."""

    def __init__(self, seconds: Iterable[float] = ()) -> None:
        module = optional("hdrh.histogram", "hdrhistogram", "loadtest")
        self._histogram: Any = module.HdrHistogram(1, _MICROSECONDS_AN_HOUR, _DIGITS)
        for value in seconds:
            self.add(value)

    def __len__(self) -> int:
        return int(self._histogram.total_count)

    def add(self, seconds: float) -> None:
        """Count one more, rounded to a microsecond; more than an hour counts as an hour."""
        microseconds = min(max(round(seconds * 1e6), 0), _MICROSECONDS_AN_HOUR)
        self._histogram.record_value(microseconds)

    def quantile(self, share: float) -> float:
        """The seconds within which at least this share was, to three digits; NaN without any."""
        return self._of_shares((share,))[0]

    def quantiles(self) -> Quantiles:
        """The quantiles of a report."""
        values = [round(1e3 * value, 3) for value in (*self._of_shares(_SHARES), self._longest())]
        return Quantiles(len(self), *values)

    def _of_shares(self, shares: tuple[float, ...]) -> list[float]:
        if not len(self):
            return [float("nan")] * len(shares)
        # The library rounds the rank to the nearest, which can tell a p99 that only 98.8 % were
        # within. Percentiles of whole ranks leave it nothing to round.
        ranks = [max(1, math.ceil(round(share * len(self), 6))) for share in shares]
        percentiles = [100 * rank / len(self) for rank in ranks]
        found = self._histogram.get_percentile_to_value_dict(percentiles)
        # A bucket stands for its upper end, which may be above all that was counted.
        return [min(found[item] / 1e6, self._longest()) for item in percentiles]

    def _longest(self) -> float:
        return float(self._histogram.max_value / 1e6) if len(self) else float("nan")
