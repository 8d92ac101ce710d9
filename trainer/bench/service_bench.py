"""The test stand: a running service, bare engines on the same cores, and what to send.

What several figures need is measured once and kept.
"""

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from trainer.bench.engine_processes import EngineProcess, engine_processes
from trainer.bench.load import Generator, Load, even_times, poisson_times, post
from trainer.bench.machine import pinned
from trainer.bench.server_process import Client, Server, Usage, leafcode
from trainer.bench.settings import SpeedSettings
from trainer.errors import TrainingError

__all__ = [
    "Capacity",
    "Moderate",
    "Overload",
    "ServiceBench",
    "classify_request",
    "default_bundle",
    "set_up_service_bench",
]

_SMALL_SIDE = 160
_CLIENTS_PER_WORKER = 4
_TURNS = 20
_WARM_UP_REQUESTS = 200
_BRIEF_REQUESTS = 300
_UNLOADED_REQUESTS = 50
_MODERATE = 0.7


@dataclass(frozen=True)
class Capacity:
    """Images a second of the service and of bare engines, round by round, taken in turns.

    The costs are CPU milliseconds a request: the service's front, its workers, and the
    generator, which runs on the same cores and is none of the service's business.
    """

    service: tuple[float, ...]
    engine: tuple[float, ...]
    front_ms: float
    worker_ms: float
    generator_ms: float

    @property
    def highest(self) -> float:
        """The highest throughput of the service."""
        return max(self.service)


@dataclass(frozen=True)
class Moderate:
    """A moderate load for a while: requests a second, and the median answer without load."""

    rate: float
    unloaded: float
    even: Load
    poisson: Load

    def slowdown(self, load: Load) -> float:
        """The 99th percentile in medians without load."""
        return load.quantile(0.99) / self.unloaded


@dataclass(frozen=True)
class Overload:
    """Twice the load that can be done, some times, and the bytes in memory before and after.

    A round is the highest throughput just before, and what became of the load.
    """

    rounds: tuple[tuple[float, Load], ...]
    bytes_before: int
    bytes_after: int

    @property
    def exchanges(self) -> Load:
        """All rounds as one."""
        loads = [load for _, load in self.rounds]
        return Load(
            tuple(item for load in loads for item in load.exchanges),
            sum(load.cpu_seconds for load in loads),
        )


@dataclass(frozen=True)
class ServiceBench:
    """A running service and the requests that it gets."""

    settings: SpeedSettings
    models: Path
    server: Server
    cores: tuple[int, ...]
    images: Sequence[bytes]

    @property
    def bundle(self) -> Path:
        """What the service answers with."""
        return default_bundle(self.models)

    @cached_property
    def requests(self) -> list[bytes]:
        """One request an image."""
        return [classify_request(data) for data in self.images]

    @cached_property
    def small_image(self) -> bytes:
        """A small JPEG: what surrounds the engine weighs most with it."""
        with Image.open(BytesIO(self.images[0])) as picture:
            small = picture.convert("RGB")
        small.thumbnail((_SMALL_SIDE, _SMALL_SIDE))
        buffer = BytesIO()
        small.save(buffer, "JPEG", quality=90)
        return buffer.getvalue()

    @property
    def generator(self) -> Generator:
        """What makes the load."""
        return Generator(self.server.address)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """The generator on one core: the last, whose worker gets so much less to do."""
        with pinned(self.cores[-1:]):
            yield

    @cached_property
    def capacity(self) -> Capacity:
        """Service and bare engines in turns, some images at a time, every image once for each."""
        shares = [self.images[number :: len(self.cores)] for number in range(len(self.cores))]
        turns = min(_TURNS, len(shares[-1]))
        service, engine, costs = [], [], []
        with engine_processes(self.bundle, shares, self.cores) as processes:
            self.saturate(self.requests[:_WARM_UP_REQUESTS])
            for turn in range(turns):
                part = slice(turn, None, turns)
                engine.append(_pace(processes, shares, part))
                requests = [classify_request(data) for share in shares for data in share[part]]
                before = self.server.usage()
                load = self.saturate(requests)
                service.append(_all_answered(load).rate())
                costs.append(_costs(before, self.server.usage(), load))
        front, workers, generator = (statistics.median(cost) for cost in zip(*costs, strict=True))
        return Capacity(tuple(service), tuple(engine), front, workers, generator)

    @cached_property
    def loaded(self) -> list["Moderate"]:
        """The answers at 70 % of what the service can do, as often as a comparison is made.

        The machine's own speed changes from one second to the next: each time, what it can
        do and how long it takes without load are measured just before.
        """
        return [self._moderate() for _ in range(self.settings.rounds)]

    def _moderate(self) -> "Moderate":
        highest, unloaded = self._highest_now(), self._unloaded_now()
        rate = _MODERATE * highest
        return Moderate(rate, unloaded, self.at(rate), self.at(rate, poisson=True))

    @cached_property
    def overload(self) -> "Overload":
        """Evenly spaced requests at twice what the service can do, measured just before."""
        before = self.server.usage().bytes
        rounds = []
        for _ in range(self.settings.rounds):
            highest = self._highest_now()
            rounds.append((highest, self.at(2 * highest)))
        return Overload(tuple(rounds), before, self.server.usage().bytes)

    def _highest_now(self) -> float:
        return _all_answered(self.saturate(self.requests[:_BRIEF_REQUESTS])).rate()

    def _unloaded_now(self) -> float:
        """The median answer to one client that has the service for itself."""
        times = []
        with self.beside(), Client(self.server.address) as client:
            for request in self.requests[:_UNLOADED_REQUESTS]:
                before = time.perf_counter()
                client.ask(request)
                times.append(time.perf_counter() - before)
        return statistics.median(times)

    def saturate(self, requests: Sequence[bytes]) -> Load:
        """Each of them once, by more clients than there are workers."""
        with self.beside():
            clients = _CLIENTS_PER_WORKER * len(self.cores)
            return self.generator.closed_loop(requests, clients)

    def at(self, rate: float, *, poisson: bool = False) -> Load:
        """Requests at a rate, whatever becomes of them."""
        seconds = self.settings.load_seconds / self.settings.rounds
        times = (
            poisson_times(rate, seconds, self.settings.seed)
            if poisson
            else even_times(rate, seconds)
        )
        with self.beside():
            return self.generator.open_loop(self.requests, times)


@contextmanager
def set_up_service_bench(
    models: Path, images: Sequence[bytes], settings: SpeedSettings
) -> Iterator[ServiceBench]:
    """A stand around a service of the model repository `models`, on all cores that it takes."""
    with leafcode(models) as server:
        cores = sorted({core for pid in server.workers for core in os.sched_getaffinity(pid)})
        # Those of one class would otherwise follow each other.
        order = np.random.default_rng(settings.seed).permutation(len(images))
        yield ServiceBench(
            settings, models, server, tuple(cores), [images[place] for place in order]
        )


def classify_request(data: bytes) -> bytes:
    """What asks our service, and the others, for the labels of an image."""
    return post("/v1/classify", data)


def default_bundle(models: Path) -> Path:
    """The version folder that a service of this repository answers with."""
    names = sorted(path for path in models.iterdir() if path.is_dir() and path.name[0] != ".")
    versions = [path for name in names[:1] for path in name.iterdir() if path.name.isdecimal()]
    if not versions:
        raise TrainingError(f"{models} has no model, expected <name>/<version>/ below it")
    return max(versions, key=lambda path: int(path.name))


def _pace(
    processes: Sequence[EngineProcess], shares: Sequence[Sequence[bytes]], part: slice
) -> float:
    """Images a second of all together, none waiting for another, as in the pool."""
    for process in processes:
        process.start(part=part)
    times = [process.finished() for process in processes]
    return sum(len(s[part]) / (end - begin) for s, (begin, end) in zip(shares, times, strict=True))


def _all_answered(load: Load) -> Load:
    if load.count(200) != len(load):
        raise TrainingError(f"{len(load) - load.count(200)} of {len(load)} requests failed")
    return load


def _costs(before: Usage, after: Usage, load: Load) -> tuple[float, float, float]:
    """CPU milliseconds a request of the front, the workers and the generator."""
    front = after.front_cpu - before.front_cpu
    workers = after.workers_cpu - before.workers_cpu
    per_request = 1e3 / len(load)
    return front * per_request, workers * per_request, load.cpu_seconds * per_request
