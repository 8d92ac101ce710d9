"""What became of the requests of a load test, for people and for programs."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from service.loadtest.histogram import Latencies, Quantiles
from service.loadtest.load import UNANSWERED, Load
from service.loadtest.server_timing import server_stages

__all__ = ["LoadReport"]

_SUCCESS = 200
# A generator that takes more of its core than this measures itself.
_BUSY_SHARE = 0.9
# One in a hundred requests may be sent later than this before the sends count as late.
_LATE_MS = 10.0
_COLUMNS = ("p50", "p90", "p99", "p99.9", "max")


@dataclass(frozen=True)
class LoadReport:
    """One run: answers by status, requests without any answer, rates and cost.

    Times are in milliseconds and count from the moment at which a request was due.
    """

    requests: int
    seconds: float
    offered_per_second: float | None
    """The rate at which requests were due; none if clients waited for their answers."""
    answers: dict[int, Quantiles]
    unanswered: int
    reasons: dict[str, int]
    """Why so many requests were not answered."""
    unfinished: int
    """Requests that the end by Ctrl-C left without an answer."""
    answers_per_second: float
    successes_per_second: float
    bytes_sent: int
    bytes_received: int
    server: dict[str, Quantiles]
    """The stages of successes, by the service's own clock."""
    generator_cpu_seconds: float
    late: Quantiles
    """How long after the moment it was due a request was sent."""

    @classmethod
    def of(cls, load: Load, offered: float | None = None) -> "LoadReport":
        """The report about a load, which may be empty."""
        by_status: dict[int, Latencies] = {}
        late = Latencies()
        for item in load.exchanges:
            if item.status not in by_status:
                by_status[item.status] = Latencies()
            by_status[item.status].add(item.seconds)
            late.add(item.late)
        unanswered = len(by_status.pop(UNANSWERED, ()))
        seconds = load.seconds
        answered = sum(map(len, by_status.values()))
        return cls(
            requests=len(load),
            seconds=seconds,
            offered_per_second=offered,
            answers={status: by_status[status].quantiles() for status in sorted(by_status)},
            unanswered=unanswered,
            reasons=dict(Counter(item.reason for item in load.exchanges if item.reason)),
            unfinished=load.unfinished,
            answers_per_second=_rate(answered, seconds),
            successes_per_second=_rate(len(by_status.get(_SUCCESS, ())), seconds),
            bytes_sent=sum(item.sent for item in load.exchanges),
            bytes_received=sum(item.received for item in load.exchanges),
            server=server_stages(
                item.server_timing for item in load.exchanges if item.status == _SUCCESS
            ),
            generator_cpu_seconds=load.cpu_seconds,
            late=late.quantiles(),
        )

    @property
    def errors(self) -> int:
        """Requests that were not answered with status 200."""
        success = self.answers.get(_SUCCESS)
        return self.requests - (success.count if success else 0)

    @property
    def generator_share(self) -> float:
        """The share of a core that the generator used."""
        return _rate(self.generator_cpu_seconds, self.seconds)

    def bottleneck(self) -> str:
        """Why the generator, and not the service, set the pace; empty if it did not."""
        if self.generator_share > _BUSY_SHARE:
            return (
                f"the generator was the bottleneck: it used {self.generator_share:.0%} of its "
                "core; run several of them, or send less"
            )
        if self.late.p99_ms > _LATE_MS:
            return (
                f"the generator was late: 1 % of the requests were sent {self.late.p99_ms:.0f} ms "
                "or more after they were due, which counts as their latency; run it on a machine "
                "of its own"
            )
        return ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; the statuses are strings, what was not measured is null."""
        document = _without_nan(asdict(self))
        document["answers"] = {str(status): item for status, item in document["answers"].items()}
        return {
            **document,
            "errors": self.errors,
            "generator_core_share": self.generator_share,
            "generator_bottleneck": self.bottleneck() or None,
        }

    def text(self) -> str:
        """Totals, a table of latencies by status, and one of the service's own stages."""
        lines = [*self._totals(), "", *_table("latency ms", self._rows())]
        if self.server:
            lines += ["", *_table("server ms", list(self.server.items()))]
        if self.bottleneck():
            lines += ["", self.bottleneck()]
        return "\n".join(lines)

    def _totals(self) -> Iterable[str]:
        offered = self.offered_per_second
        yield f"{self.requests} requests in {self.seconds:.1f} s"
        yield (
            ("a second: " if offered is None else f"a second: {offered:.1f} offered, ")
            + f"{self.answers_per_second:.1f} answered, {self.successes_per_second:.1f} of them "
            "with status 200"
        )
        if self.unfinished:
            yield f"interrupted: {self.unfinished} more were under way"
        yield f"{_bytes(self.bytes_sent)} sent, {_bytes(self.bytes_received)} received"
        yield f"{self.errors} errors" + (
            f" ({self.errors / self.requests:.1%}): {self.kinds_of_errors()}" if self.errors else ""
        )
        yield (
            f"generator: {self.generator_cpu_seconds:.2f} s of CPU, {self.generator_share:.0%} "
            "of a core" + ("" if offered is None else f", p99 {self.late.p99_ms:.1f} ms late")
        )

    def kinds_of_errors(self) -> str:
        """How many errors there were of each kind."""
        kinds = {
            **{f"status {status}": item.count for status, item in self.answers.items()},
            **{f"no answer ({reason})": count for reason, count in self.reasons.items()},
        }
        kinds.pop(f"status {_SUCCESS}", None)
        return ", ".join(f"{count} {kind}" for kind, count in kinds.items())

    def _rows(self) -> list[tuple[str, Quantiles]]:
        return [(f"status {status}", item) for status, item in self.answers.items()]


def _table(title: str, rows: list[tuple[str, Quantiles]]) -> Iterable[str]:
    yield f"{title:<12}" + "".join(f"{name:>9}" for name in (*_COLUMNS, "count"))
    for name, item in rows:
        times = (item.p50_ms, item.p90_ms, item.p99_ms, item.p999_ms, item.max_ms)
        cells = "".join(f"{value:>9.{_decimals(value)}f}" for value in times)
        yield f"{name:<12}{cells}{item.count:>9}"


def _decimals(milliseconds: float) -> int:
    """About three digits, which is what a histogram keeps."""
    return 2 if milliseconds < 10 else 1 if milliseconds < 1000 else 0


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def _without_nan(value: Any) -> Any:
    """The same with null for NaN, which JSON does not know."""
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    return None if isinstance(value, float) and value != value else value  # noqa: PLR0124
