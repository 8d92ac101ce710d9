"""Requests over HTTP/1.1 from one cheap process: raw sockets, ready-made bytes.

The generator often runs on the cores of the service that it loads, so it must cost little.
`closed_loop` sends the next request when an answer has arrived, which finds the highest
throughput; `open_loop` sends at set times, whatever became of earlier requests, and counts
the time of each from the moment it was due.
"""

import asyncio
import gc
import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from service.loadtest.connections import Address, Connections, Watch
from service.loadtest.load import UNANSWERED, Exchange, Load, LoadInterrupted

__all__ = ["Generator", "even_times", "poisson_times"]

_TIMEOUT_SECONDS = 60.0
# A server that is gone refuses thousands of connections a second, which would all be counted.
_PAUSE_SECONDS = 0.05
# As many as a plan may have clients.
_MAX_CONNECTIONS = 1000


def even_times(rate: float, count: int) -> list[float]:
    """Times of requests at a constant rate, from zero."""
    return [number / rate for number in range(count)]


def poisson_times(rate: float, count: int, seed: int) -> list[float]:
    """Times of requests that arrive independently of each other, `rate` a second on average."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, count)
    return [float(moment) for moment in np.cumsum(gaps)]


@dataclass(frozen=True)
class Generator:
    """Sends requests to one server; one without an answer after `timeout` seconds is given up.

    `clock` times the exchanges. Bodies of answers and `Server-Timing` are kept only on
    request. Ctrl-C raises `LoadInterrupted`, which has the exchanges until then.
    """

    address: Address
    timeout: float = _TIMEOUT_SECONDS
    clock: Callable[[], float] = time.perf_counter
    keep_bodies: bool = False
    keep_timings: bool = False
    max_connections: int = _MAX_CONNECTIONS
    watch: Watch | None = None

    def closed_loop(
        self, requests: Iterable[bytes], clients: int, seconds: float = float("inf")
    ) -> Load:
        """Send each request once; each client sends the next when it has its answer.

        No request is sent after `seconds`. A client that got no answer pauses for a moment.
        """

        def begin(connections: Connections) -> None:
            numbered = enumerate(requests)
            end = self.clock() + seconds

            def send_next(last: Exchange | None = None) -> None:
                if last is not None and last.status == UNANSWERED:
                    connections.hold()
                    asyncio.get_running_loop().call_later(_PAUSE_SECONDS, resume)
                    return
                now = self.clock()
                following = next(numbered, None) if now < end else None
                if following is not None:
                    connections.send(*following, now, send_next)

            def resume() -> None:
                send_next()
                connections.release()

            for _ in range(clients):
                send_next()

        return self._run(begin)

    def open_loop(self, requests: Sequence[bytes], times: Sequence[float]) -> Load:
        """Send one request at each of `times`, in seconds from now, taking `requests` in turns."""

        def begin(connections: Connections) -> None:
            loop = asyncio.get_running_loop()
            start, start_of_loop = self.clock(), loop.time()

            def send(number: int) -> None:
                request = requests[number % len(requests)]
                due = start + times[number]
                connections.send(number, request, due, lambda _: None, self.clock() - due)
                schedule(number + 1)
                connections.release()

            def schedule(number: int) -> None:
                if number < len(times):
                    connections.hold()
                    # When late, at once, but after the answers that have arrived.
                    loop.call_at(start_of_loop + times[number], send, number)

            schedule(0)

        return self._run(begin)

    def _run(self, begin: Callable[[Connections], None]) -> Load:
        with _no_garbage_collection(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            load, interrupted = runner.run(self._exchange_all(begin))
        if interrupted:
            raise LoadInterrupted(load)
        return load

    async def _exchange_all(self, begin: Callable[[Connections], None]) -> tuple[Load, bool]:
        """The load, and whether it was interrupted."""
        connections = Connections(self)
        before = time.process_time()
        try:
            begin(connections)
            connections.release()
            await connections.finished()
            interrupted = False
        except asyncio.CancelledError:  # by the runner, whose handler of SIGINT does so
            connections.stop()
            interrupted = True
        seconds = time.process_time() - before
        await connections.close()
        exchanges = tuple(sorted(connections.exchanges))  # by number
        return Load(exchanges, seconds, connections.under_way), interrupted


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """No collection lengthens an exchange; nothing here makes cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop that costs least; asyncio's own where uvloop is not installed."""
    try:
        module = importlib.import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = module.new_event_loop
    return factory
