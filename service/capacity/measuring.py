"""Services with waiting workers side by side, measured in turns."""

import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.capacity.client import Burst, ClientPlan, send_all, waiting_body
from service.loadtest.errors import LoadTestError
from service.loadtest.processes import ServiceProcess
from service.pool.cores import allowed_cores

__all__ = ["CapacitySettings", "Measured", "measure"]

_WAITING_SERVICE = ("service.capacity.waiting_service",)
_TICKS = os.sysconf("SC_CLK_TCK")
# So many that a worker never waits for a client, and the usual queue holds them.
_CONNECTIONS_PER_WORKER = 2
_MIN_CONNECTIONS = 8


@dataclass(frozen=True)
class CapacitySettings:
    """What is measured: each number of front ends with each number of workers."""

    models: Path
    workers: Sequence[int] = (2, 8, 32)
    front_ends: Sequence[int] = (1, 2)
    wait_ms: float = 8.0
    body_bytes: int = 12_000
    seconds: float = 3.0
    rounds: int = 5
    core_each: bool = False
    """Whether every front end has one core, together with its part of workers and client.

    Otherwise the kernel places everything on all cores, and one front end has more than two
    have: where there are as many cores as front ends, workers and client take of theirs.
    """


@dataclass(frozen=True)
class Measured:
    """The rounds of one service: requests a second, and ms of CPU a request of each part."""

    workers: int
    front_ends: int
    rates: tuple[float, ...]
    front_end_ms: float
    worker_ms: float
    client_ms: float

    @property
    def rate(self) -> float:
        """Requests a second, the median."""
        return statistics.median(self.rates)

    @property
    def rate_by_cpu(self) -> float:
        """Requests a second if every front end had a core to itself, by its CPU time.

        However busy the machine is, and whatever workers and client take of it.
        """
        return 1e3 * self.front_ends / self.front_end_ms if self.front_end_ms else 0.0


def measure(settings: CapacitySettings) -> list[Measured]:
    """All services of one number of workers run side by side, and are measured in turns."""
    if settings.core_each and max(settings.front_ends) > len(allowed_cores()):
        raise LoadTestError(
            f"{max(settings.front_ends)} front ends need a core each, "
            f"{len(allowed_cores())} are allowed here"
        )
    found = []
    for workers in settings.workers:
        counts = [count for count in settings.front_ends if count <= workers]
        with ExitStack() as running:
            measured = [_Service(settings, workers, count) for count in counts]
            for item in measured:
                running.enter_context(item.running())
            turns = [[item.turn() for item in measured] for _ in range(settings.rounds)]
        found += [
            _summary(workers, count, own)
            for count, own in zip(counts, zip(*turns, strict=True), strict=True)
        ]
    return found


@dataclass(frozen=True)
class _Turn:
    bursts: list[Burst]
    front_end_seconds: float
    worker_seconds: float

    @property
    def answers(self) -> int:
        return sum(burst.answers for burst in self.bursts)

    @property
    def rate(self) -> float:
        return sum(burst.answers / burst.seconds for burst in self.bursts)


class _Service:
    """One of the services, and the clients that it is measured with."""

    def __init__(self, settings: CapacitySettings, workers: int, front_ends: int) -> None:
        self._settings = settings
        self._workers = workers
        self._front_ends = front_ends
        allowed = allowed_cores()
        self._cores = allowed[:front_ends] if settings.core_each else allowed

    @contextmanager
    def running(self) -> Iterator[None]:
        pin = "always" if self._settings.core_each else "never"
        counts = ("--workers", str(self._workers), "--front-ends", str(self._front_ends))
        service = ServiceProcess(
            self._settings.models, *counts, "--pin", pin, command=_WAITING_SERVICE
        )
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cores)  # which the service inherits
        try:
            service.__enter__()
        finally:
            os.sched_setaffinity(0, before)
        self._process = service
        with ExitStack() as stopping:
            stopping.push(service)
            yield

    def turn(self) -> _Turn:
        before = _cpu(self._process.front_ends), _cpu(self._process.workers)
        bursts = send_all(self._clients())
        after = _cpu(self._process.front_ends), _cpu(self._process.workers)
        # Warming up is in these, and takes a fifth of all.
        share = 0.8
        spent = ((end - start) * share for start, end in zip(before, after, strict=True))
        return _Turn(bursts, *spent)

    def _clients(self) -> list[ClientPlan]:
        """One for each front end if those have cores of their own, else one."""
        settings, (host, port) = self._settings, self._process.target.address
        body = waiting_body(settings.wait_ms / 1e3, settings.body_bytes)
        head = f"POST /v1/classify HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        connections = max(_MIN_CONNECTIONS, _CONNECTIONS_PER_WORKER * self._workers)
        places = [(core,) for core in self._cores] if settings.core_each else [self._cores]
        return [
            ClientPlan(
                *(host, port, head, body),
                *(connections // len(places), settings.seconds, cores),
            )
            for cores in places
        ]


def _cpu(pids: Sequence[int]) -> float:
    """Seconds of CPU that processes have taken."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / _TICKS


def _summary(workers: int, front_ends: int, turns: Sequence[_Turn]) -> Measured:
    answers = sum(turn.answers for turn in turns)
    clients = sum(burst.cpu_seconds for turn in turns for burst in turn.bursts)
    return Measured(
        workers,
        front_ends,
        tuple(turn.rate for turn in turns),
        1e3 * sum(turn.front_end_seconds for turn in turns) / answers,
        1e3 * sum(turn.worker_seconds for turn in turns) / answers,
        1e3 * clients / answers,
    )
