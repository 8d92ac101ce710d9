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

from PIL import Image

from trainer.errors import TrainingError
from trainer.reproduce.serving.load import Generator, Load, even_times, poisson_times, post
from trainer.reproduce.serving.processes import Client, Server, Usage, leafcode
from trainer.reproduce.speed.machine import pinned
from trainer.reproduce.speed.processes import EngineProcess, engine_processes
from trainer.reproduce.speed.settings import SpeedSettings

__all__ = ["Capacity", "Overload", "Stand", "classify_request", "default_bundle", "set_up_stand"]

_SMALL_SIDE = 160
_CLIENTS_PER_WORKER = 4
_UNLOADED_REQUESTS = 100


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
class Overload:
    """Twice the load that can be done, and the bytes in memory before and after it."""

    load: Load
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class Stand:
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
        """Service and bare engines in turns, every image once in a round."""
        shares = [self.images[number :: len(self.cores)] for number in range(len(self.cores))]
        service, engine, costs = [], [], []
        with engine_processes(self.bundle, shares, self.cores) as processes:
            self.saturate()  # warms up
            for _ in range(self.settings.rounds):
                engine.append(_pace(processes, shares))
                before = self.server.usage()
                load = self.saturate()
                service.append(_all_answered(load).rate())
                costs.append(_costs(before, self.server.usage(), load))
        front, workers, generator = (statistics.median(cost) for cost in zip(*costs, strict=True))
        return Capacity(tuple(service), tuple(engine), front, workers, generator)

    @cached_property
    def unloaded_seconds(self) -> float:
        """The median answer to one client that has the service for itself."""
        times = []
        with self.beside(), Client(self.server.address) as client:
            for request in self.requests[:_UNLOADED_REQUESTS]:
                before = time.perf_counter()
                client.ask(request)
                times.append(time.perf_counter() - before)
        return statistics.median(times)

    @cached_property
    def overload(self) -> Overload:
        """Evenly spaced requests at twice the highest throughput."""
        self.saturate()
        before = self.server.usage().bytes
        load = self.at(2 * self.capacity.highest)
        return Overload(load, before, self.server.usage().bytes)

    def saturate(self) -> Load:
        """Every image once, by more clients than there are workers."""
        with self.beside():
            clients = _CLIENTS_PER_WORKER * len(self.cores)
            return self.generator.closed_loop(self.requests, clients)

    def at(self, rate: float, *, poisson: bool = False) -> Load:
        """Requests at a rate, whatever becomes of them."""
        seconds = self.settings.load_seconds
        times = (
            poisson_times(rate, seconds, self.settings.seed)
            if poisson
            else even_times(rate, seconds)
        )
        with self.beside():
            return self.generator.open_loop(self.requests, times)


@contextmanager
def set_up_stand(models: Path, images: Sequence[bytes], settings: SpeedSettings) -> Iterator[Stand]:
    """A stand around a service of the model repository `models`, on all cores that it takes."""
    with leafcode(models) as server:
        cores = sorted({core for pid in server.workers for core in os.sched_getaffinity(pid)})
        yield Stand(settings, models, server, tuple(cores), images)


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


def _pace(processes: Sequence[EngineProcess], shares: Sequence[Sequence[bytes]]) -> float:
    """Images a second of all together, none waiting for another, as in the pool."""
    for process in processes:
        process.start()
    times = [process.finished() for process in processes]
    return sum(len(s) / (end - begin) for s, (begin, end) in zip(shares, times, strict=True))


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
