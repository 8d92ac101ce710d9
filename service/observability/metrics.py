"""The numbers of `/metrics`, for Prometheus.

Workers send their timings back with each answer and the pool knows the rest, so this one
process reports for all of them. Every application has a registry of its own. Labels come
from route templates and fixed tables, never from what a client wrote.
"""

import platform
from bisect import bisect_left
from collections import Counter as CounterOf
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from service import __version__
from service.engine import STAGES, Manifest
from service.observability.merging import MergedPages, to_json
from service.observability.request_record import RequestRecord
from service.pool.state import PoolState

__all__ = ["BUCKETS", "Metrics", "PoolCollector"]

MetricKind = Literal["counter", "gauge"]

BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds in seconds, from below the fastest stage to the default deadline."""
_BOUNDS = (*map(str, BUCKETS), "+Inf")


class Metrics:
    """Counts and durations since the start; `page` renders them."""

    def __init__(self, reasons: Iterable[str]) -> None:
        # When a series was first counted tells nothing that the start of the process does not.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "leafcode_requests",
            "Requests by route and status.",
            ("route", "status"),
            registry=self.registry,
        )
        self._rejections = Counter(
            "leafcode_rejections",
            "Requests that were rejected, by the reason in their problem document.",
            ("reason",),
            registry=self.registry,
        )
        self._unknown = Counter(
            "leafcode_unknown_images",
            "Images that look like none of the model's classes.",
            ("name", "version"),
            registry=self.registry,
        )
        for reason in reasons:  # all of them start at zero
            self._rejections.labels(reason)
        self._routes: defaultdict[str, _Durations] = defaultdict(_Durations)
        self._stages = {stage: _Durations() for stage in ("queue", *STAGES)}
        self.registry.register(
            _DurationCollector(
                "leafcode_request_seconds",
                "Time from the headers of a request to the end of its answer.",
                "route",
                self._routes,
            )
        )
        self.registry.register(
            _DurationCollector(
                "leafcode_stage_seconds",
                "Time of one image, or one set of descriptors, by stage.",
                "stage",
                self._stages,
            )
        )

    def count(self, requests: Sequence[RequestRecord]) -> None:
        """Add requests that have ended."""
        alike = CounterOf((request.route, str(request.status)) for request in requests)
        for labels, number in alike.items():
            self._requests.labels(*labels).inc(number)
        unknown: CounterOf[tuple[str, str]] = CounterOf()
        for request in requests:
            self._routes[request.route].observe(request.seconds)
            if request.reason:
                self._rejections.labels(request.reason).inc()
            for job in request.jobs:
                self._stages["queue"].observe(job.queue)
                for stage, seconds in job.stages.items():
                    self._stages[stage].observe(seconds)
            if request.model and request.jobs:  # at zero, too, so that a rate has a beginning
                model = (request.model.name, str(request.model.version))
                unknown[model] += sum(job.unknown for job in request.jobs)
        for model, number in unknown.items():
            self._unknown.labels(*model).inc(number)

    def count_rejected_connection(self, reason: str, status: int) -> None:
        """Add one request that did not get as far as its headers."""
        self._requests.labels("none", str(status)).inc()
        self._rejections.labels(reason).inc()

    def count_closed_connection(self, reason: str) -> None:
        """One connection that was closed without an answer, or in the middle of one."""
        self._rejections.labels(reason).inc()

    def watch(self, kind: MetricKind, name: str, text: str, read: Callable[[], float]) -> None:
        """Report what `read` returns at the moment of asking."""
        self.registry.register(_Watched(kind, name, text, read))

    def page(self, accept: str, others: Sequence[Sequence[Any]] = ()) -> tuple[bytes, str]:
        """All numbers in the format that `accept` asks for, and its content type.

        They are added to those of `others`, pages of the same form as `numbers`.
        """
        encode, content_type = choose_encoder(accept)
        pages = MergedPages([self.numbers(), *others]) if others else self.registry
        return encode(pages), content_type

    def numbers(self) -> list[Any]:
        """All numbers as plain values."""
        return to_json(self.registry.collect())


class _Watched(Collector):
    """One number that somebody else keeps."""

    def __init__(self, kind: MetricKind, name: str, text: str, read: Callable[[], float]) -> None:
        self._kind, self._name, self._text, self._read = kind, name, text, read

    def collect(self) -> Iterator[Metric]:
        """The number as it is now."""
        family = GaugeMetricFamily if self._kind == "gauge" else CounterMetricFamily
        yield family(self._name, self._text, self._read())


class _Durations:
    """How many durations fell into each bucket, and their sum.

    The library's `Histogram` takes a lock twice for every number: eight numbers a request
    were 8 % of the front end's time.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Add one; a bucket holds its own upper bound."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class _DurationCollector(Collector):
    """Durations by one label, as a histogram."""

    def __init__(
        self, name: str, text: str, label: str, durations: Mapping[str, _Durations]
    ) -> None:
        self._family = (name, text, label)
        self._durations = durations

    def collect(self) -> Iterator[Metric]:
        """One histogram with a series for each value of the label."""
        name, text, label = self._family
        family = HistogramMetricFamily(name, text, labels=(label,))
        for value, durations in self._durations.items():
            buckets = zip(_BOUNDS, accumulate(durations.counts), strict=True)
            family.add_metric((value,), list(buckets), durations.total)
        yield family


class PoolCollector(Collector):
    """The pool and its models as they are at the moment of asking."""

    def __init__(
        self, state: Callable[[], PoolState], models: Callable[[], Sequence[Manifest]]
    ) -> None:
        self._state = state
        self._models = models

    def describe(self) -> list[Metric]:
        """Nothing, so that registering asks for no state."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Gauges of the pool, then what is running."""
        state = self._state()
        yield from _pool(state)
        yield from _workers(state)
        yield _model_info(self._models())
        yield _build_info()


def _pool(state: PoolState) -> Iterator[Metric]:
    gauges = {
        "leafcode_queue_depth": ("Jobs that wait for a worker.", state.queue_depth),
        "leafcode_queue_bytes": ("Bytes of the jobs that wait.", state.queue_bytes),
        "leafcode_accepting": ("1 while work is accepted.", int(state.accepting)),
        "leafcode_workers": ("Worker processes.", len(state.workers)),
        "leafcode_workers_ready": (
            "Workers that work or wait for work.",
            sum(worker.ready for worker in state.workers),
        ),
        "leafcode_workers_busy": ("Workers that work.", state.busy),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(name, text, value)
    rejections = CounterMetricFamily(
        "leafcode_job_rejections",
        "Jobs without an answer of a worker, by reason; a request has one job for each image.",
        labels=("reason",),
    )
    for reason, count in sorted(state.rejections.items()):
        rejections.add_metric((reason,), count)
    yield rejections


def _workers(state: PoolState) -> Iterator[Metric]:
    restarts = CounterMetricFamily(
        "leafcode_worker_restarts", "Worker processes that were replaced.", labels=("worker",)
    )
    memory = GaugeMetricFamily(
        "leafcode_worker_resident_bytes",
        "Resident memory of a worker, pages that it shares with the others included.",
        labels=("worker",),
    )
    for worker in state.workers:
        restarts.add_metric((str(worker.number),), worker.restarts)
        memory.add_metric((str(worker.number),), worker.resident_bytes())
    yield restarts
    yield memory


def _model_info(models: Sequence[Manifest]) -> Metric:
    info = GaugeMetricFamily(
        "leafcode_model_info", "A loaded model; always 1.", labels=("name", "version", "digest")
    )
    for model in models:
        info.add_metric((model.name, str(model.version), model.digest), 1)
    return info


def _build_info() -> Metric:
    info = GaugeMetricFamily(
        "leafcode_build_info", "The running service; always 1.", labels=("version", "python")
    )
    info.add_metric((__version__, platform.python_version()), 1)
    return info
