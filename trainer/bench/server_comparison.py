"""The same engine behind three servers: ours, LitServe, and FastAPI with an executor.

All three run at the same time and get the same requests in turns. Then each loses one
worker to SIGKILL in the middle of its work.
"""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainer.bench.load import Exchange, Generator, Load
from trainer.bench.peers import optional
from trainer.bench.server_process import Server, rival
from trainer.bench.service_bench import ServiceBench

__all__ = ["OURS", "RIVALS", "Conduct", "compare"]

logger = logging.getLogger(__name__)

OURS = "Leafcode"
RIVALS = {"LitServe": "lit", "FastAPI with ProcessPoolExecutor": "executor"}

_CLIENTS = 8
_REQUESTS = 600
_ROUNDS = 3
_ATTACKED = 40
_KILLED_AFTER = 10
_PATIENCE_SECONDS = 5.0
_RECOVERY_SECONDS = 15.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Conduct:
    """How a server did: with 8 clients at work, and when a worker was killed.

    `failed` counts requests of 40; `recovery_seconds` is None if it never did all again.
    """

    per_second: float
    p50_ms: float
    p99_ms: float
    failed: int
    recovery_seconds: float | None


def compare(stand: ServiceBench, missing: dict[str, str]) -> dict[str, Conduct]:
    """Every server that can be run; `missing` gets the reason of the others."""
    with contextlib.ExitStack() as stack:
        servers = {OURS: stand.server}
        for name, module in RIVALS.items():
            try:
                servers[name] = stack.enter_context(_start(stand, module))
            except Exception as error:  # noqa: BLE001  # whatever it is, the others run
                missing[f"rival {name}"] = f"{error}" or type(error).__name__
        best = _in_turns(stand, servers)
        return {
            name: Conduct(
                load.rate(),
                1e3 * load.quantile(0.5),
                1e3 * load.quantile(0.99),
                *lose_a_worker(stand, servers[name]),
            )
            for name, load in best.items()
        }


def _start(stand: ServiceBench, module: str) -> Server:
    if module == "lit":
        optional("litserve", "litserve")
    return rival(module, stand.bundle, stand.cores)


def _in_turns(stand: ServiceBench, servers: Mapping[str, Server]) -> dict[str, Load]:
    """The best round of each server, after one that does not count."""
    requests = stand.requests[:_REQUESTS]
    best: dict[str, Load] = {}
    for number in range(1 + _ROUNDS):
        for name, server in servers.items():
            with stand.beside():
                load = Generator(server.address).closed_loop(requests, _CLIENTS)
            if number and (name not in best or load.rate() > best[name].rate()):
                best[name] = load
    return best


def lose_a_worker(stand: ServiceBench, server: Server) -> tuple[int, float | None]:
    """Kill one of the workers under load: requests that failed, and seconds to recover."""
    requests = (stand.requests * _ATTACKED)[:_ATTACKED]
    workers = server.workers
    killed_at = 0.0
    answers = 0

    def on_answer(_: Exchange) -> None:
        nonlocal answers, killed_at
        answers += 1
        if answers == _KILLED_AFTER:
            killed_at = time.perf_counter()
            os.kill(workers[-1], signal.SIGKILL)

    generator = Generator(server.address, _PATIENCE_SECONDS)
    load = generator.closed_loop(requests, _CLIENTS, on_answer)

    def works() -> bool:
        again = generator.closed_loop(requests[:_CLIENTS], _CLIENTS)
        return len(server.workers) == len(workers) and again.count(200) == len(again)

    return len(load) - load.count(200), _seconds_until(works, killed_at)


def _seconds_until(condition: Callable[[], bool], start: float) -> float | None:
    while time.perf_counter() - start < _RECOVERY_SECONDS:
        if condition():
            return time.perf_counter() - start
        time.sleep(_POLL_SECONDS)
    return None
