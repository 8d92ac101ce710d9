"""What the running service is judged by, one function each.

Speeds are ratios of neighbouring turns; times are elapsed ones, because waiting is what a
client notices. Every figure is the median of rounds.
"""

import os
import signal
import statistics
import time
from collections.abc import Callable
from operator import attrgetter

from service.engine import Engine
from trainer.bench.goals import Figure, Goal
from trainer.bench.machine import one_thread_each, pinned
from trainer.bench.server_process import (
    ServerProcess,
    all_workers_ready,
    leafcode,
    wait_until_all_ready,
)
from trainer.bench.service_bench import ServiceBench
from trainer.bench.spread import Spread
from trainer.errors import TrainingError

__all__ = ["SERVICE_FIGURES", "replace_a_worker"]

_REPLACED_SECONDS = 30.0
_CALLS_A_TURN = 20
_EXPLAINED_IMAGES = 30
_POLL_SECONDS = 0.005


def service_vs_engine(bench: ServiceBench) -> Figure:
    """Compare throughput over HTTP with that of bare engines on the same cores just before."""
    turns = bench.turns
    return Figure(
        Spread.of(turn.service / turn.engine for turn in turns),
        {
            "service": Spread.of(1 / turn.service for turn in turns),
            "engine": Spread.of(1 / turn.engine for turn in turns),
        },
        {"service_per_second": statistics.median(turn.service for turn in turns)},
    )


def front_end_ms(bench: ServiceBench) -> Figure:
    """Measure the CPU of the event loop's process a request, while all workers are busy."""
    others = ("workers_ms", "generator_ms")
    return Figure(
        Spread.of(turn.front_end_ms for turn in bench.turns),
        {},
        {name: statistics.median(map(attrgetter(name), bench.turns)) for name in others},
    )


def service_added_ms(bench: ServiceBench) -> Figure:
    """Measure what HTTP and the pool add to one small JPEG, in neighbouring turns."""
    small = bench.small_image
    data = bench.images[small].read_bytes()
    served, bare = [], []
    with pinned(bench.cores[-1:]), one_thread_each():
        engine = Engine.load(bench.bundle)
        for _ in range(1 + bench.settings.rounds):
            served.append(bench.alone([small] * _CALLS_A_TURN))
            bare.append(_median_seconds(lambda: engine.classify(data)))
    # The first turn of each warms up.
    pairs = list(zip(served[1:], bare[1:], strict=True))
    return Figure(
        Spread.of(1e3 * (service - engine) for service, engine in pairs),
        {"service": Spread.of(served[1:]), "engine": Spread.of(bare[1:])},
    )


def explain_cost(bench: ServiceBench) -> Figure:
    """Compare the answers of `/v1/explain` with those of `/v1/classify`, in neighbouring turns."""
    images = [path.read_bytes() for path in bench.images[:_EXPLAINED_IMAGES]]
    pairs = [
        tuple(bench.one_by_one(call, images) for call in ("/v1/classify", "/v1/explain"))
        for _ in range(1 + bench.settings.rounds)
    ][1:]  # the first turn of each warms up
    classified, explained = zip(*pairs, strict=True)
    return Figure(
        Spread.of(why / label for label, why in pairs),
        {"classify": Spread.of(classified), "explain": Spread.of(explained)},
    )


def latency_p99_at_70(bench: ServiceBench) -> Figure:
    """Compare the 99th percentile at 70 % of the highest throughput with the median without load.

    Requests are evenly spaced. With Poisson arrivals some wait for others however fast the
    service is; that figure is kept beside it.
    """
    rounds = bench.moderate
    return Figure(
        Spread.of(found.slowdown(found.even) for found in rounds),
        {
            "unloaded": Spread.of(found.unloaded for found in rounds),
            "p50": Spread.of(found.even.p50[200] for found in rounds),
            "p99": Spread.of(found.even.p99[200] for found in rounds),
        },
        {
            "poisson": statistics.median(found.slowdown(found.poisson) for found in rounds),
            "offered_per_second": statistics.median(found.rate for found in rounds),
        },
    )


def goodput_at_200(bench: ServiceBench) -> Figure:
    """Compare answers a second at twice the highest throughput with that throughput."""
    loads = bench.overload.loads
    requests = sum(load.requests for load in loads)
    answered, rejected = (sum(load.count(status) for load in loads) for status in (200, 429))
    if other := requests - answered - rejected:
        raise TrainingError(f"{other} of {requests} requests got neither an answer nor a 429")
    shares = Spread.of(load.per_second / highest for highest, load in bench.overload.rounds)
    return Figure(shares, {}, {"answered": answered, "requests": requests})


def rejection_ms_at_200(bench: ServiceBench) -> Figure:
    """Measure the 99th percentile of the time until a request is rejected."""
    loads = [load for load in bench.overload.loads if load.count(429)]
    if not loads:
        raise TrainingError("no request was rejected, so there was no overload")
    return Figure(
        Spread.of(1e3 * load.p99[429] for load in loads),
        {"p50": Spread.of(load.p50[429] for load in loads)},
        {"rejected": sum(load.count(429) for load in loads)},
    )


def memory_growth_at_200(bench: ServiceBench) -> Figure:
    """Compare the memory of all processes after the overload with that before."""
    found = bench.overload
    facts = {"before_mb": found.bytes_before / 1e6, "after_mb": found.bytes_after / 1e6}
    return Figure(Spread.of([found.bytes_after / found.bytes_before]), {}, facts)


def ready_seconds(bench: ServiceBench) -> Figure:
    """Time a start until all workers are ready; kernels are compiled already."""
    times = []
    for _ in range(bench.settings.rounds):
        started = time.perf_counter()
        with leafcode(bench.models) as server:
            wait_until_all_ready(server.address)
            times.append(time.perf_counter() - started)
    return Figure(Spread.of(times))


def replaced_seconds(bench: ServiceBench) -> Figure:
    """Time the replacement of a killed worker."""
    times = []
    for _ in range(bench.settings.rounds):
        # A worker that has done nothing useful yet is replaced more slowly, on purpose.
        bench.saturate([bench.small_image] * (16 * len(bench.cores)))
        times.append(replace_a_worker(bench.server))
    return Figure(Spread.of(times))


def replace_a_worker(server: ServerProcess) -> float:
    """Kill a worker; return the seconds until all workers are there and ready."""
    before = server.workers
    killed = time.perf_counter()
    os.kill(before[-1], signal.SIGKILL)
    while time.perf_counter() - killed < _REPLACED_SECONDS:
        now = server.workers
        is_replaced = len(now) == len(before) and now != before
        if is_replaced and all_workers_ready(server.address):
            return time.perf_counter() - killed
        time.sleep(_POLL_SECONDS)
    raise TrainingError(f"a killed worker was not replaced within {_REPLACED_SECONDS:.0f} s")


def _median_seconds(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_CALLS_A_TURN):
        before = time.perf_counter()
        run()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


SERVICE_FIGURES: dict[str, Goal[ServiceBench]] = {
    "service_vs_engine": Goal(
        service_vs_engine, "images a second over HTTP / bare engines on the same cores", 0.85, 0.9
    ),
    "front_end_ms": Goal(
        front_end_ms, "CPU ms of the front end a request at saturation", aim=0.45, ceiling=0.6
    ),
    "service_added_ms": Goal(
        service_added_ms, "ms that HTTP and the pool add to a small JPEG", ceiling=1.5
    ),
    "explain_cost": Goal(
        explain_cost, "time of /v1/explain / /v1/classify, one client", ceiling=1.5
    ),
    "latency_p99_at_70": Goal(
        latency_p99_at_70, "p99 at 70 % load / median without load", ceiling=4
    ),
    "goodput_at_200": Goal(goodput_at_200, "answers a second at 200 % load / highest", 0.9),
    "rejection_ms_at_200": Goal(rejection_ms_at_200, "ms until 429 at 200 % load, p99", ceiling=50),
    "memory_growth_at_200": Goal(
        memory_growth_at_200, "memory after 200 % load / before", ceiling=1.1
    ),
    "ready_seconds": Goal(ready_seconds, "s from process start to ready", ceiling=3),
    "replaced_seconds": Goal(replaced_seconds, "s until a killed worker is replaced", ceiling=1),
}
