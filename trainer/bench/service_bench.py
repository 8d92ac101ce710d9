"""A running service, bare engines on the same cores, and the load that both get.

What several figures need is measured once and kept.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPConnection
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from trainer.bench.engine_processes import EngineProcess, engine_processes
from trainer.bench.load_generator import Load, LoadGenerator
from trainer.bench.server_process import (
    Address,
    ServerProcess,
    Usage,
    leafcode,
    wait_until_all_ready,
)
from trainer.bench.settings import BenchSettings
from trainer.errors import TrainingError

__all__ = ["Moderate", "Overload", "ServiceBench", "Turn", "set_up_service_bench"]

_SMALL_SIDE = 160
_CLIENTS_PER_WORKER = 4
_TURNS = 20
_WARM_UP_REQUESTS = 200
_BRIEF_REQUESTS = 300
_UNLOADED_REQUESTS = 50
_MODERATE = 0.7


@dataclass(frozen=True)
class Turn:
    """Images a second of the bare engines, and of the service just after.

    The costs are CPU milliseconds a request: of the front end, of the workers, and of the
    generator, which runs on the same cores but is no part of the service.
    """

    engine: float
    service: float
    front_end_ms: float
    workers_ms: float
    generator_ms: float


@dataclass(frozen=True)
class Moderate:
    """A moderate load for a while: requests a second, and the median answer without load."""

    rate: float
    unloaded: float
    even: Load
    poisson: Load

    def slowdown(self, load: Load) -> float:
        """The 99th percentile in medians without load."""
        return load.p99.get(200, float("nan")) / self.unloaded


@dataclass(frozen=True)
class Overload:
    """Rounds of twice the load that can be done, and the bytes in memory before and after.

    A round is the highest throughput just before, and what became of the load.
    """

    rounds: tuple[tuple[float, Load], ...]
    bytes_before: int
    bytes_after: int

    @property
    def loads(self) -> list[Load]:
        """What became of the load, round by round."""
        return [load for _, load in self.rounds]


@dataclass(frozen=True)
class ServiceBench:
    """A running service, its generator, and the images that it gets; the last one is small."""

    settings: BenchSettings
    models: Path
    server: ServerProcess
    generator: LoadGenerator
    cores: tuple[int, ...]
    images: Sequence[Path]

    @cached_property
    def bundle(self) -> Path:
        """The version folder that the service answers with."""
        model = _answering_model(self.server.address, self.images[0].read_bytes())
        return self.models / str(model["name"]) / str(model["version"])

    @property
    def small_image(self) -> int:
        """The place of a small JPEG: the costs around the engine weigh most with it."""
        return len(self.images) - 1

    @cached_property
    def turns(self) -> list[Turn]:
        """Measure bare engines and service in turns; both get every image once."""
        count = len(self.images) - 1
        shares = [range(number, count, len(self.cores)) for number in range(len(self.cores))]
        turns = min(_TURNS, len(shares[-1]))
        data = [[self.images[place].read_bytes() for place in share] for share in shares]
        with engine_processes(self.bundle, data, self.cores) as processes:
            self.saturate(range(min(_WARM_UP_REQUESTS, count)))
            return [
                self._turn(processes, shares, slice(turn, None, turns)) for turn in range(turns)
            ]

    def _turn(
        self, processes: Sequence[EngineProcess], shares: Sequence[range], part: slice
    ) -> Turn:
        engine = _engines_per_second(processes, [len(share[part]) for share in shares], part)
        before = self.server.usage()
        load = self.saturate([place for share in shares for place in share[part]])
        costs = _milliseconds_a_request(before, self.server.usage(), load)
        return Turn(engine, load.all_answered().per_second, *costs)

    @cached_property
    def moderate(self) -> list[Moderate]:
        """Load the service at 70 % of what it can do, in rounds.

        The machine's own speed changes from one second to the next: each time, what it can
        do and how long it takes without load are measured just before.
        """
        return [self._moderate() for _ in range(self.settings.rounds)]

    def _moderate(self) -> Moderate:
        rate = _MODERATE * self._highest_now()
        unloaded = self.alone(range(min(_UNLOADED_REQUESTS, len(self.images) - 1)))
        return Moderate(rate, unloaded, self._at(rate), self._at(rate, poisson=True))

    @cached_property
    def overload(self) -> Overload:
        """Load the service with twice what it can do, measured just before, evenly spaced."""
        before = self.server.usage().bytes
        rounds = []
        for _ in range(self.settings.rounds):
            highest = self._highest_now()
            rounds.append((highest, self._at(2 * highest)))
        return Overload(tuple(rounds), before, self.server.usage().bytes)

    def saturate(self, images: Sequence[int]) -> Load:
        """Send each of these images once, by more clients than there are workers."""
        return self.generator.closed_loop(_CLIENTS_PER_WORKER * len(self.cores), images)

    def alone(self, images: Sequence[int]) -> float:
        """The median seconds of an answer to one client that has the service for itself."""
        return self.generator.closed_loop(1, images).all_answered().p50[200]

    def one_by_one(self, call: str, images: Sequence[bytes]) -> float:
        """The mean seconds of an answer to one client that sends these images to one call."""
        with closing(HTTPConnection(*self.server.address)) as connection:
            started = time.perf_counter()
            for image in images:
                connection.request("POST", call, image, {"Content-Type": "image/jpeg"})
                answer = connection.getresponse()
                answer.read()
                if answer.status != HTTPStatus.OK:
                    raise TrainingError(f"{call} answered {answer.status}, expected 200")
            return (time.perf_counter() - started) / len(images)

    def _highest_now(self) -> float:
        count = min(_BRIEF_REQUESTS, len(self.images) - 1)
        return self.saturate(range(count)).all_answered().per_second

    def _at(self, rate: float, *, poisson: bool = False) -> Load:
        seconds = self.settings.load_seconds / self.settings.rounds
        return self.generator.open_loop(rate, seconds, poisson=poisson)


@contextmanager
def set_up_service_bench(
    models: Path, images: Sequence[Path], settings: BenchSettings
) -> Iterator[ServiceBench]:
    """Start a service of the model repository `models`, and its generator."""
    with tempfile.TemporaryDirectory(prefix="leafcode-") as scratch, leafcode(models) as server:
        wait_until_all_ready(server.address)
        cores = sorted({core for pid in server.workers for core in os.sched_getaffinity(pid)})
        # Those of one class would otherwise follow each other.
        order = np.random.default_rng(settings.seed).permutation(len(images))
        chosen = [*(images[place] for place in order), _shrink(images[0], Path(scratch))]
        # On the last core, whose worker gets so much less to do.
        with LoadGenerator(server.address, chosen, cores[-1]) as generator:
            yield ServiceBench(settings, models, server, generator, tuple(cores), chosen)


def _shrink(image: Path, folder: Path) -> Path:
    """A small JPEG of an image."""
    with Image.open(BytesIO(image.read_bytes())) as picture:
        small = picture.convert("RGB")
    small.thumbnail((_SMALL_SIDE, _SMALL_SIDE))
    small.save(folder / "small.jpg", "JPEG", quality=90)
    return folder / "small.jpg"


def _answering_model(address: Address, image: bytes) -> dict[str, object]:
    """Name and version of the model that the service chooses by default."""
    with closing(HTTPConnection(*address)) as connection:
        connection.request("POST", "/v1/classify", image, {"Content-Type": "image/jpeg"})
        model: dict[str, object] = json.load(connection.getresponse())["model"]
        return model


def _engines_per_second(
    processes: Sequence[EngineProcess], counts: Sequence[int], part: slice
) -> float:
    """Images a second of all engines together, none waiting for another, as in the pool."""
    for process in processes:
        process.start(part=part)
    times = [process.finished() for process in processes]
    return sum(count / (end - begin) for count, (begin, end) in zip(counts, times, strict=True))


def _milliseconds_a_request(before: Usage, after: Usage, load: Load) -> tuple[float, float, float]:
    """CPU milliseconds a request of the front end, the workers and the generator."""
    front_end = after.front_end_cpu - before.front_end_cpu
    workers = after.workers_cpu - before.workers_cpu
    per_request = 1e3 / load.requests
    return front_end * per_request, workers * per_request, load.cpu_seconds * per_request
