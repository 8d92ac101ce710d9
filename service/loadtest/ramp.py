"""The knee: the highest rate at which a service still answers everybody soon enough.

One client alone tells how long an answer takes without load. Then requests come at rising
rates, each twice the last, until one is too high; halving what lies between finds the knee
to five percent. Every rate that was tried is a point of the curve of latency over load.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from service.loadtest.histogram import Quantiles
from service.loadtest.report import LoadReport

__all__ = ["RampLimits", "RampReport", "RampStep", "find_knee"]

_SUCCESS = 200
# The first rate keeps a worker busy for a quarter of the time.
_FIRST_SHARE = 0.25
_LOWEST_SHARE = 0.01
_RESOLUTION = 1.05
_MAX_SLOWDOWN = 5.0
_MAX_ERRORS = 0.01
_BAR = 24
_HEADER = ("offered/s", "answered/s", "p50 ms", "p90 ms", "p99 ms", "errors")

Measure = Callable[[float], LoadReport]
"""Offers requests at a rate and reports about them."""


@dataclass(frozen=True)
class RampLimits:
    """What a rate must keep to; without a limit on p99, p90 is compared with a client alone."""

    max_p99_ms: float | None = None
    max_errors: float = _MAX_ERRORS
    """As a share of all requests."""
    max_rate: float = 100_000.0

    def fault(self, report: LoadReport, alone_ms: float) -> str:
        """Why the rate of this report is too high; empty if it is not."""
        answers = report.answers.get(_SUCCESS)
        if answers is None or report.errors > self.max_errors * report.requests:
            share = report.errors / max(1, report.requests)
            return f"{share:.1%} of the requests failed, more than {self.max_errors:.1%}"
        if self.max_p99_ms is not None:
            if answers.p99_ms > self.max_p99_ms:
                return f"p99 was {answers.p99_ms:.1f} ms, more than {self.max_p99_ms:g}"
        elif answers.p90_ms > _MAX_SLOWDOWN * alone_ms:
            return (
                f"p90 was {answers.p90_ms:.1f} ms, more than {_MAX_SLOWDOWN:g} times the "
                f"{alone_ms:.1f} ms of a client alone"
            )
        return ""


@dataclass(frozen=True)
class RampStep:
    """One rate, what became of its requests, and why it was too high, if it was."""

    rate: float
    report: LoadReport
    fault: str

    @property
    def successes(self) -> Quantiles | None:
        """Times of the answers with status 200, if there were any."""
        return self.report.answers.get(_SUCCESS)

    def sentence(self) -> str:
        """What was found, while the ramp goes on."""
        times = f", p90 {self.successes.p90_ms:.1f} ms" if self.successes else ""
        return f"{self.rate:.1f} requests a second{times}{', too many' if self.fault else ''}"


@dataclass(frozen=True)
class RampReport:
    """The steps of a ramp in the order of their rates; the ramp may have been interrupted."""

    alone_ms: float
    steps: tuple[RampStep, ...]

    @classmethod
    def of(cls, alone_ms: float, steps: Iterable[RampStep]) -> "RampReport":
        """The report about steps in any order."""
        return cls(alone_ms, tuple(sorted(steps, key=lambda item: item.rate)))

    @property
    def knee(self) -> RampStep | None:
        """The highest rate below all that were too high; none if even the lowest was."""
        ceiling = self.too_high
        good = [item for item in self.steps if not item.fault]
        below = [item for item in good if ceiling is None or item.rate < ceiling.rate]
        return below[-1] if below else None

    @property
    def too_high(self) -> RampStep | None:
        """The lowest rate that was too high; none if no rate was."""
        return next((item for item in self.steps if item.fault), None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        knee, above = self.knee, self.too_high
        return {
            "alone_ms": self.alone_ms,
            "knee_per_second": knee and knee.rate,
            "too_high_per_second": above and above.rate,
            "too_high_because": above and above.fault,
            "steps": [
                {"rate": item.rate, "too_high": bool(item.fault), **item.report.to_json()}
                for item in self.steps
            ],
        }

    def text(self) -> str:
        """A row for each rate, with p90 as a bar on a logarithmic scale, and the knee."""
        header = "".join(f"{name:>11}" for name in _HEADER)
        return "\n".join([header, *self._rows(), "", *self._verdict()])

    def _rows(self) -> Iterator[str]:
        times = [item.successes.p90_ms for item in self.steps if item.successes]
        for item in self.steps:
            bar = _bar(item.successes.p90_ms, min(times), max(times)) if item.successes else ""
            yield f"{_row(item)}  {bar}{' <- knee' if item is self.knee else ''}"

    def _verdict(self) -> Iterator[str]:
        knee, above = self.knee, self.too_high
        if knee is not None:
            yield f"knee: {knee.rate:.1f} requests a second" + ("" if above else " or more")
        if above is not None:
            yield f"{above.rate:.1f} a second are too many: {above.fault}"
            if above.report.bottleneck():
                yield f"the knee may lie higher, because {above.report.bottleneck()}"


def find_knee(
    alone_ms: float, measure: Measure, limits: RampLimits, on_step: Callable[[RampStep], None]
) -> None:
    """Try rates until the knee is known; `on_step` gets each step as soon as it is measured."""

    def is_too_high(rate: float) -> bool:
        report = measure(rate)
        step = RampStep(rate, report, limits.fault(report, alone_ms))
        on_step(step)
        return bool(step.fault)

    _search(1e3 / alone_ms, limits.max_rate, is_too_high)


def _search(rate_alone: float, highest: float, is_too_high: Callable[[float], bool]) -> None:
    """Bracket the knee by doubling or halving, then narrow the bracket down."""
    low, high = 0.0, min(highest, _FIRST_SHARE * rate_alone)
    while not is_too_high(high):
        low = high
        if low >= highest:
            return
        high = min(highest, 2 * low)
    while not low:
        if high < _LOWEST_SHARE * rate_alone:
            return
        if is_too_high(high / 2):
            high /= 2
        else:
            low = high / 2
    while high / low > _RESOLUTION:
        middle = (low + high) / 2
        low, high = (low, middle) if is_too_high(middle) else (middle, high)


def _row(step: RampStep) -> str:
    answers = step.successes
    times = (answers.p50_ms, answers.p90_ms, answers.p99_ms) if answers else ()
    cells = [
        *(f"{step.rate:.1f}", f"{step.report.answers_per_second:.1f}"),
        *(f"{value:.1f}" for value in times),
        *("-" for _ in range(3 - len(times))),
        str(step.report.errors),
    ]
    return "".join(f"{cell:>11}" for cell in cells)


def _bar(value: float, shortest: float, longest: float) -> str:
    """Longer for longer times, by their logarithm: those beyond the knee are a hundred times."""
    share = math.log(value / shortest) / (math.log(longest / shortest) or 1.0)
    return "#" * (1 + round((_BAR - 1) * share))
