"""What the running service is judged by, one function each.

Speeds are ratios within one run and one machine; times are of the wall, because waiting
is what a client feels.
"""

import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict

from service.engine import Engine
from trainer.bench.goals import Figure, Goal
from trainer.bench.machine import one_thread_each, pinned
from trainer.bench.server_process import Client, Server, leafcode
from trainer.bench.service_bench import ServiceBench, classify_request
from trainer.errors import TrainingError

__all__ = ["SERVICE_FIGURES", "replace_a_worker"]

_STARTS = 3
_REPLACEMENTS = 3
_REPLACED_SECONDS = 30.0
_TURN = 10
_POLL_SECONDS = 0.005


def service_vs_engine(stand: ServiceBench) -> Figure:
    """Throughput over HTTP, beside that of bare engines on the same cores."""
    found = stand.capacity
    facts = {name: value for name, value in asdict(found).items() if name.endswith("_ms")}
    medians = statistics.median(found.service) / statistics.median(found.engine)
    return Figure(
        found.highest / max(found.engine),
        {"service": 1 / found.highest, "engine": 1 / max(found.engine)},
        {**facts, "service_per_second": found.highest, "ratio_of_medians": medians},
    )


def service_added_ms(stand: ServiceBench) -> Figure:
    """What HTTP and the pool add to one small JPEG: medians, taken in turns."""
    request = classify_request(stand.small_image)
    served: list[float] = []
    bare: list[float] = []
    with pinned(stand.cores[-1:]), one_thread_each(), Client(stand.server.address) as client:
        engine = Engine.load(stand.bundle)
        for _ in range(1 + stand.settings.rounds):
            served += _times(lambda: client.ask(request))
            bare += _times(lambda: engine.classify(stand.small_image))
    # The first turn of each warms up.
    seconds = {
        "service": statistics.median(served[_TURN:]),
        "engine": statistics.median(bare[_TURN:]),
    }
    return Figure(1e3 * (seconds["service"] - seconds["engine"]), seconds)


def latency_p99_at_70(stand: ServiceBench) -> Figure:
    """The 99th percentile at 70 % of the highest throughput, in medians without load.

    Requests are evenly spaced. With arrivals by chance some wait for others however fast
    the service is; that figure is kept beside it.
    """
    best = min(stand.loaded, key=lambda found: found.slowdown(found.even))
    return Figure(
        best.slowdown(best.even),
        {
            "unloaded": best.unloaded,
            "p50": best.even.quantile(0.5),
            "p99": best.even.quantile(0.99),
        },
        {
            "median": statistics.median(found.slowdown(found.even) for found in stand.loaded),
            "poisson": min(found.slowdown(found.poisson) for found in stand.loaded),
            "offered_per_second": best.rate,
        },
    )


def goodput_at_200(stand: ServiceBench) -> Figure:
    """Answers a second at twice the highest throughput, as a share of that."""
    load = stand.overload.exchanges
    other = len(load) - load.count(200) - load.count(429)
    if other:
        raise TrainingError(f"{other} of {len(load)} requests got neither an answer nor a 429")
    shares = [load.rate() / highest for highest, load in stand.overload.rounds]
    facts = {"median": statistics.median(shares), "answered": load.count(200)}
    return Figure(max(shares), {}, {**facts, "requests": len(load)})


def refusal_ms_at_200(stand: ServiceBench) -> Figure:
    """The 99th percentile of the time until a request is refused."""
    load = stand.overload.exchanges
    if not load.count(429):
        raise TrainingError(f"none of {len(load)} requests was refused, so there was no overload")
    seconds = {"p50": load.quantile(0.5, 429), "p99": load.quantile(0.99, 429)}
    return Figure(1e3 * seconds["p99"], seconds, {"refused": load.count(429)})


def memory_growth_at_200(stand: ServiceBench) -> Figure:
    """Memory of all processes after that load, beside before."""
    found = stand.overload
    facts = {"before_mb": found.bytes_before / 1e6, "after_mb": found.bytes_after / 1e6}
    return Figure(found.bytes_after / found.bytes_before, {}, facts)


def ready_seconds(stand: ServiceBench) -> Figure:
    """From the start of the process until `/readyz` says yes; kernels are compiled."""
    times = []
    for _ in range(_STARTS):
        started = time.perf_counter()
        with leafcode(stand.models) as server, Client(server.address) as client:
            if client.get("/readyz")[0] != 200:
                raise TrainingError("the service said that it is ready and then that it is not")
            times.append(time.perf_counter() - started)
    return Figure(statistics.median(times), {"best": min(times), "worst": max(times)})


def replaced_seconds(stand: ServiceBench) -> Figure:
    """From SIGKILL for a worker until every worker is ready again."""
    times = []
    for _ in range(_REPLACEMENTS):
        # A worker that has done nothing useful yet is replaced more slowly, on purpose.
        count = 16 * len(stand.cores)
        stand.generator.closed_loop((stand.requests * count)[:count], count)
        times.append(replace_a_worker(stand.server))
    return Figure(statistics.median(times), {"best": min(times), "worst": max(times)})


def replace_a_worker(server: Server) -> float:
    """Kill one; the seconds until all are there and ready."""
    before = server.workers
    with Client(server.address) as client:
        killed = time.perf_counter()
        os.kill(before[-1], signal.SIGKILL)
        while time.perf_counter() - killed < _REPLACED_SECONDS:
            now = server.workers
            others = len(now) == len(before) and now != before
            if others and client.get("/readyz")[0] == 200:
                return time.perf_counter() - killed
            time.sleep(_POLL_SECONDS)
    raise TrainingError(f"a killed worker was not replaced within {_REPLACED_SECONDS:.0f} s")


def _times(run: Callable[[], object]) -> list[float]:
    """Seconds of a few calls."""
    times = []
    for _ in range(_TURN):
        before = time.perf_counter()
        run()
        times.append(time.perf_counter() - before)
    return times


SERVICE_FIGURES: dict[str, Goal[ServiceBench]] = {
    "service_vs_engine": Goal(
        service_vs_engine, "images a second over HTTP / bare engines on the same cores", 0.85
    ),
    "service_added_ms": Goal(
        service_added_ms, "ms that HTTP and the pool add to a small JPEG", ceiling=2
    ),
    "latency_p99_at_70": Goal(
        latency_p99_at_70, "p99 at 70 % load / median without load", ceiling=4
    ),
    "goodput_at_200": Goal(goodput_at_200, "answers a second at 200 % load / highest", 0.9),
    "refusal_ms_at_200": Goal(refusal_ms_at_200, "ms until 429 at 200 % load, p99", ceiling=50),
    "memory_growth_at_200": Goal(
        memory_growth_at_200, "memory after 200 % load / before", ceiling=1.1
    ),
    "ready_seconds": Goal(ready_seconds, "s from process start to ready", ceiling=3),
    "replaced_seconds": Goal(replaced_seconds, "s until a killed worker is replaced", ceiling=1),
}
