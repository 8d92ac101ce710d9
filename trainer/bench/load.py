"""Requests over HTTP/1.1 from one cheap process: raw sockets, ready-made bytes.

The generator runs on the cores of the service that it measures, so it must cost little:
a request is written as it lies in memory, of an answer only the status line and its
length are read. `closed_loop` asks again when an answer is there, which finds the highest
throughput; `open_loop` asks at set times, whatever became of earlier requests.
"""

import asyncio
import contextlib
import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from trainer.bench.stopwatch import Clock, no_garbage_collection

__all__ = [
    "Address",
    "Exchange",
    "Generator",
    "Load",
    "even_times",
    "poisson_times",
    "post",
]

Address = tuple[str, int]

# No server that is measured takes longer for an answer, unless it has lost the request.
_PATIENCE_SECONDS = 60.0
_SWEEP_SECONDS = 0.5
_LOST = 0

_Then = Callable[["Exchange"], None]
_Settle = Callable[[int, bytes], None]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request: when it was due and when its answer was complete; status 0 if it was lost."""

    number: int
    due: float
    ended: float
    status: int
    body: bytes

    @property
    def seconds(self) -> float:
        """From the time it was due: waiting for a free connection counts."""
        return self.ended - self.due


@dataclass(frozen=True)
class Load:
    """All exchanges in the order of their requests, and the CPU that making them took."""

    exchanges: tuple[Exchange, ...]
    cpu_seconds: float

    def __len__(self) -> int:
        return len(self.exchanges)

    @property
    def seconds(self) -> float:
        """From the first request to the last answer."""
        return max(item.ended for item in self.exchanges) - self.exchanges[0].due

    def count(self, status: int) -> int:
        """Requests with this answer."""
        return sum(item.status == status for item in self.exchanges)

    def rate(self, status: int = 200) -> float:
        """Such answers a second."""
        return self.count(status) / self.seconds

    def quantile(self, share: float, status: int = 200) -> float:
        """Seconds that this share of such answers took at most; the smallest such value."""
        times = [item.seconds for item in self.exchanges if item.status == status]
        return float(np.quantile(times, share, method="inverted_cdf")) if times else float("nan")


def post(path: str, body: bytes, content_type: str = "application/octet-stream") -> bytes:
    """The bytes of a request, ready to be written to a connection that stays open."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def even_times(rate: float, seconds: float) -> list[float]:
    """Times of requests at a constant rate."""
    return [number / rate for number in range(max(1, round(rate * seconds)))]


def poisson_times(rate: float, seconds: float, seed: int) -> list[float]:
    """Times of as many requests that know nothing of each other."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, max(1, round(rate * seconds)))
    return [float(moment) for moment in np.cumsum(gaps)]


@dataclass(frozen=True)
class Generator:
    """Makes load for one server; answers are timed by `clock` and lost after `patience`."""

    address: Address
    patience: float = _PATIENCE_SECONDS
    clock: Clock = time.perf_counter

    def closed_loop(
        self,
        requests: Sequence[bytes],
        clients: int,
        on_answer: Callable[[Exchange], None] = lambda _: None,
    ) -> Load:
        """Every request once: each client sends the next one as soon as it has its answer."""

        def begin(site: "_Site") -> None:
            numbers = iter(range(len(requests)))

            def ask(answer: Exchange | None = None) -> None:
                if answer is not None:
                    on_answer(answer)
                number = next(numbers, None)
                if number is not None:
                    site.ask(number, requests[number], self.clock(), ask)

            for _ in range(clients):
                ask()

        return self._measured(len(requests), begin)

    def open_loop(self, requests: Sequence[bytes], times: Sequence[float]) -> Load:
        """One request at each of `times`, in seconds from now; `requests` are taken in turns."""

        def begin(site: "_Site") -> None:
            loop = asyncio.get_running_loop()
            start, start_of_loop = self.clock(), loop.time()
            numbers = iter(range(len(times)))

            def ask(number: int) -> None:
                request = requests[number % len(requests)]
                site.ask(number, request, start + times[number], lambda _: None)
                following = next(numbers, None)
                if following is not None:
                    # When late, at once, but after the answers that have come.
                    loop.call_at(start_of_loop + times[following], ask, following)

            loop.call_at(start_of_loop + times[0], ask, next(numbers))

        return self._measured(len(times), begin)

    def _measured(self, count: int, begin: Callable[["_Site"], None]) -> Load:
        async def run() -> tuple[list[Exchange], float]:
            site = _Site(self, count)
            before = time.process_time()
            begin(site)
            await site.all_answered()
            seconds = time.process_time() - before
            await site.close()
            return site.exchanges, seconds

        with no_garbage_collection(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            exchanges, seconds = runner.run(run())
        return Load(tuple(sorted(exchanges, key=lambda item: item.number)), seconds)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop that costs least; asyncio's own where uvloop is not to be had."""
    try:
        module = importlib.import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = module.new_event_loop
    return factory


class _Site:
    """The open connections to a server, as many as are needed at once. Callbacks, no tasks."""

    def __init__(self, generator: Generator, count: int) -> None:
        self.exchanges: list[Exchange] = []
        self._generator = generator
        self._count = count
        self._free: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._done = asyncio.Event()

    def ask(self, number: int, request: bytes, due: float, then: _Then) -> None:
        """Send a request over a free connection; `then` gets the exchange."""

        def settle(status: int, body: bytes) -> None:
            exchange = Exchange(number, due, self._generator.clock(), status, body)
            self.exchanges.append(exchange)
            then(exchange)
            if len(self.exchanges) == self._count:
                self._done.set()

        while self._free:
            # The one that was used last, unless the server hung up: its buffers are warm.
            connection = self._free.pop()
            if connection.usable:
                self._send(connection, request, settle)
                return
        opening = asyncio.create_task(self._open(request, settle))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, request: bytes, settle: _Settle) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(_Connection, *self._generator.address)
        except OSError:
            settle(_LOST, b"")
        else:
            self._send(connection, request, settle)

    def _send(self, connection: "_Connection", request: bytes, settle: _Settle) -> None:
        def on_answer(status: int, body: bytes) -> None:
            self._busy.discard(connection)
            if connection.usable:
                self._free.append(connection)
            settle(status, body)

        self._busy.add(connection)
        connection.send(request, on_answer)

    async def all_answered(self) -> None:
        """Wait for that; now and then, hang up where there was no answer for too long."""
        while not self._done.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._done.wait(), _SWEEP_SECONDS)
            oldest = time.monotonic() - self._generator.patience
            for connection in [item for item in self._busy if item.asked < oldest]:
                connection.hang_up()

    async def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._free:
            connection.hang_up()
        await asyncio.gather(*(connection.closed for connection in self._free))


class _Connection(asyncio.Protocol):
    """One request at a time; an answer is (status, body), or (0, nothing) if it never came."""

    def __init__(self) -> None:
        self.usable = True
        self.asked = 0.0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settle: _Settle | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        # By its interface: uvloop's transports are of no such class.
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, settle: _Settle) -> None:
        """Write a request; the answer, or its loss, comes to `settle`."""
        self.asked = time.monotonic()
        self._settle = settle
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Read an answer once all of it is there."""
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator or len(body) < _length(head):
            return
        self._buffer = b""
        if b"connection: close" in head.lower():
            self.hang_up()
        self._answer(int(head[9:12]), body)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """What was asked is lost."""
        self.usable = False
        self._answer(_LOST, b"")
        if not self.closed.done():
            self.closed.set_result(None)

    def hang_up(self) -> None:
        """Ask nothing more."""
        self.usable = False
        self._transport.abort()

    def _answer(self, status: int, body: bytes) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(status, body)


def _length(head: bytes) -> int:
    """Bytes of the body; the servers measured here always say."""
    _, _, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0] or 0)
