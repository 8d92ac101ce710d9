"""The same engine behind three servers: ours, LitServe, and FastAPI with an executor.

All three run at the same time and get the same requests in turns. Then each loses one
worker to SIGKILL in the middle of its work.
"""

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

from trainer.bench.load_generator import Load, LoadGenerator
from trainer.bench.peers import optional
from trainer.bench.server_process import Address, ServerProcess, peer
from trainer.bench.service_bench import ServiceBench
from trainer.bench.spread import Spread

__all__ = ["OURS", "PEERS", "ServerResult", "compare_servers", "lose_a_worker"]

OURS = "Leafcode"
PEERS = {"LitServe": "lit", "FastAPI with ProcessPoolExecutor": "executor"}

_CLIENTS = 8
_REQUESTS = 400
_REQUESTS_AROUND_KILL = 40
_KILL_AFTER = 10
_TIMEOUT_SECONDS = 5.0
_RECOVERY_SECONDS = 15.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class ServerResult:
    """How a server did: with 8 clients at work, and when a worker was killed.

    `failed` counts requests of 40; `recovery_seconds` is None if the server did not recover.
    """

    per_second: Spread
    p50_ms: Spread
    p99_ms: Spread
    failed: int
    recovery_seconds: float | None


def compare_servers(bench: ServiceBench, missing: dict[str, str]) -> dict[str, ServerResult]:
    """The result of every server that can be run; `missing` gets the reason of the others."""
    count = min(_REQUESTS, len(bench.images))
    images = bench.images[:count]
    with contextlib.ExitStack() as stack:
        servers, generators = {OURS: bench.server}, {OURS: bench.generator}
        for name, module in PEERS.items():
            try:
                servers[name] = stack.enter_context(_start(bench, module))
            except Exception as error:  # noqa: BLE001  # whatever it is, the others run
                missing[f"peer {name}"] = f"{error}" or type(error).__name__
                continue
            generator = LoadGenerator(servers[name].address, images, bench.cores[-1])
            generators[name] = stack.enter_context(generator)
        loads = _in_turns(generators, count, bench.settings.rounds)
        data = [image.read_bytes() for image in images[:_REQUESTS_AROUND_KILL]]
        return {
            name: _result(loads[name], *lose_a_worker(server, data))
            for name, server in servers.items()
        }


def _start(bench: ServiceBench, module: str) -> ServerProcess:
    if module == "lit":
        optional("litserve", "litserve")
    return peer(module, bench.bundle, bench.cores)


def _in_turns(
    generators: Mapping[str, LoadGenerator], count: int, rounds: int
) -> dict[str, list[Load]]:
    """The rounds of each server, after one that does not count."""
    loads: dict[str, list[Load]] = {name: [] for name in generators}
    for _ in range(1 + rounds):
        for name, generator in generators.items():
            loads[name].append(generator.closed_loop(_CLIENTS, range(count)).all_answered())
    return {name: found[1:] for name, found in loads.items()}


def _result(loads: Sequence[Load], failed: int, recovery_seconds: float | None) -> ServerResult:
    return ServerResult(
        Spread.of(load.per_second for load in loads),
        Spread.of(1e3 * load.p50[200] for load in loads),
        Spread.of(1e3 * load.p99[200] for load in loads),
        failed,
        recovery_seconds,
    )


def lose_a_worker(server: ServerProcess, images: Sequence[bytes]) -> tuple[int, float | None]:
    """Kill a worker under load: how many requests fail, and seconds until all is well again."""
    workers = server.workers
    numbers = itertools.count(1)
    killed_at: list[float] = []

    def send(data: bytes) -> bool:
        answered = _is_classified(server.address, data)
        if next(numbers) == _KILL_AFTER:
            killed_at.append(time.perf_counter())
            os.kill(workers[-1], signal.SIGKILL)
            # On a busy machine it lives on for a while; only then is there something to lose.
            _seconds_until(lambda: workers[-1] not in server.workers, killed_at[0])
        return answered

    def has_recovered() -> bool:
        probes = clients.map(lambda data: _is_classified(server.address, data), requests[:_CLIENTS])
        return all(probes) and len(server.workers) == len(workers)

    requests = list(itertools.islice(itertools.cycle(images), _REQUESTS_AROUND_KILL))
    with ThreadPoolExecutor(_CLIENTS) as clients:
        failed = list(clients.map(send, requests)).count(False)
        return failed, _seconds_until(has_recovered, killed_at[0])


def _is_classified(address: Address, data: bytes) -> bool:
    """Whether an image is answered with labels in time."""
    try:
        connection = HTTPConnection(*address, timeout=_TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/classify", data, {"Content-Type": "image/png"})
            response = connection.getresponse()
            response.read()
            return response.status == 200
    except (OSError, HTTPException):
        return False


def _seconds_until(condition: Callable[[], bool], start: float) -> float | None:
    while time.perf_counter() - start < _RECOVERY_SECONDS:
        if condition():
            return time.perf_counter() - start
        time.sleep(_POLL_SECONDS)
    return None
