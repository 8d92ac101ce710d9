"""The numbers of `/metrics`, for Prometheus.

Workers send their timings back with each answer and the pool knows the rest, so this one
process reports for all of them. Every application has a registry of its own. Labels come
from route templates and fixed tables, never from what a client wrote.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from service import __version__
from service.engine import STAGES, Manifest
from service.observability.request_record import RequestRecord
from service.pool.state import PoolState

__all__ = ["Metrics", "PoolCollector"]

# From below the fastest stage to the default deadline.
_BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)

# Requests that are counted together.
_AT_A_TIME = 100


class Metrics:
    """Counts and durations since the start; `page` renders them."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "leafcode_requests",
            "Requests by route and status.",
            ("route", "status"),
            registry=self.registry,
        )
        self._latency = Histogram(
            "leafcode_request_seconds",
            "Time from the headers of a request to the end of its answer.",
            ("route",),
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self._rejections = Counter(
            "leafcode_rejections",
            "Requests that were rejected, by the reason in their problem document.",
            ("reason",),
            registry=self.registry,
        )
        self._ended: list[tuple[str, float, RequestRecord]] = []
        self._by_route: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        for reason in reasons:  # all of them start at zero
            self._rejections.labels(reason)
        stages = Histogram(
            "leafcode_stage_seconds",
            "Time of one image, or one set of descriptors, by stage.",
            ("stage",),
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self._stages = {stage: stages.labels(stage) for stage in ("queue", *STAGES)}

    def count(self, route: str, seconds: float, request: RequestRecord) -> None:
        """One request that has ended.

        They are added up some at a time: for a single one, most of the time goes by until
        the code for it is in the processor's cache.
        """
        self._ended.append((route, seconds, request))
        if len(self._ended) >= _AT_A_TIME:
            self._add_up()

    def _add_up(self) -> None:
        ended, self._ended = self._ended, []
        for ended_request in ended:
            self._add(*ended_request)

    def _add(self, route: str, seconds: float, request: RequestRecord) -> None:
        requests, latency = self._children(route, request.status)
        requests.inc()
        latency.observe(seconds)
        if request.reason:
            self._rejections.labels(request.reason).inc()
        for job in request.jobs:
            self._stages["queue"].observe(job.queue)
            for stage, stage_seconds in job.stages.items():
                self._stages[stage].observe(stage_seconds)

    def _children(self, route: str, status: int) -> tuple[Counter, Histogram]:
        """The series of a route; kept, because finding one takes longer than counting."""
        found = self._by_route.get((route, status))
        if found is None:
            found = self._requests.labels(route, str(status)), self._latency.labels(route)
            self._by_route[route, status] = found
        return found

    def count_rejected_connection(self, reason: str, status: int) -> None:
        """One request that did not get as far as its headers."""
        self._requests.labels("none", str(status)).inc()
        self._rejections.labels(reason).inc()

    def count_closed_connection(self, reason: str) -> None:
        """One connection that was closed without an answer, or in the middle of one."""
        self._rejections.labels(reason).inc()

    def page(self, accept: str) -> tuple[bytes, str]:
        """All numbers in the format that `accept` asks for, and its content type."""
        self._add_up()
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


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
