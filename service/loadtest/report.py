"""What became of the requests of a load test, for people and for programs."""

from dataclasses import asdict, dataclass
from typing import Any

from service.loadtest.generator import Load

__all__ = ["LoadReport", "StatusReport"]

_UNANSWERED = 0
_HEADER = ("status", "count", "p50 ms", "p90 ms", "p99 ms", "max ms")


@dataclass(frozen=True)
class StatusReport:
    """The answers with one status, and how long they took in milliseconds."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class LoadReport:
    """One run: answers by status, requests without any answer, rates and cost."""

    requests: int
    seconds: float
    answers: dict[int, StatusReport]
    unanswered: int
    answers_per_second: float
    successes_per_second: float
    generator_cpu_seconds: float

    @classmethod
    def of(cls, load: Load) -> "LoadReport":
        """The report about a load of at least one request."""
        statuses = [status for status in load.statuses if status != _UNANSWERED]
        return cls(
            requests=len(load),
            seconds=load.seconds,
            answers={status: _status_report(load, status) for status in statuses},
            unanswered=load.count(_UNANSWERED),
            answers_per_second=sum(map(load.rate, statuses)),
            successes_per_second=load.rate(200),
            generator_cpu_seconds=load.cpu_seconds,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; the statuses are strings."""
        answers = {str(status): asdict(item) for status, item in self.answers.items()}
        return {**asdict(self), "answers": answers}

    def text(self) -> str:
        """A table of the statuses and a line of totals."""
        rows = [_HEADER, *(_row(status, item) for status, item in self.answers.items())]
        lines = ["".join(f"{cell:>9}" for cell in row) for row in rows]
        if self.unanswered:
            lines.append(f"{'none':>9}{self.unanswered:>9}")
        totals = (
            f"{self.requests} requests in {self.seconds:.1f} s, "
            f"{self.answers_per_second:.1f} answers a second, "
            f"{self.successes_per_second:.1f} of them with status 200; "
            f"the generator used {self.generator_cpu_seconds:.2f} s of CPU"
        )
        return "\n".join([*lines, totals])


def _status_report(load: Load, status: int) -> StatusReport:
    quantiles = (1e3 * load.quantile(share, status) for share in (0.5, 0.9, 0.99, 1.0))
    return StatusReport(load.count(status), *quantiles)


def _row(status: int, item: StatusReport) -> tuple[str, ...]:
    times = (item.p50_ms, item.p90_ms, item.p99_ms, item.max_ms)
    return str(status), str(item.count), *(f"{value:.1f}" for value in times)
