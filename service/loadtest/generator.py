"""Requests over HTTP/1.1 from one cheap process: raw sockets, ready-made bytes.

The generator often runs on the cores of the service that it loads, so it must cost little:
a request is written as it lies in memory, of an answer only the status line and its
length are read. `closed_loop` sends the next request when an answer has arrived, which
finds the highest throughput; `open_loop` sends at set times, whatever became of earlier
requests.
"""

import asyncio
import contextlib
import gc
import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np

__all__ = ["Address", "Exchange", "Generator", "Load", "even_times", "poisson_times"]

Address = tuple[str, int]

_TIMEOUT_SECONDS = 60.0
_SWEEP_SECONDS = 0.5
_UNANSWERED = 0

_OnExchange = Callable[["Exchange"], None]
_OnAnswer = Callable[[int, bytes], None]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request: when it was due, when its answer was complete, and the answer.

    The status is 0 if no answer came. The body is empty unless the generator keeps bodies.
    """

    number: int
    due: float
    ended: float
    status: int
    body: bytes

    @property
    def seconds(self) -> float:
        """The time since the request was due, so that waiting for a connection counts."""
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
        """The time from the first request to the last answer."""
        return max(item.ended for item in self.exchanges) - self.exchanges[0].due

    @property
    def statuses(self) -> list[int]:
        """The statuses that occur, in ascending order; 0 stands for requests without answer."""
        return sorted({item.status for item in self.exchanges})

    def count(self, status: int) -> int:
        """How many requests were answered with this status."""
        return sum(item.status == status for item in self.exchanges)

    def rate(self, status: int = 200) -> float:
        """How many such answers came in a second."""
        return self.count(status) / self.seconds

    def quantile(self, share: float, status: int = 200) -> float:
        """The smallest time within which this share of such answers came; NaN without any."""
        times = [item.seconds for item in self.exchanges if item.status == status]
        return float(np.quantile(times, share, method="inverted_cdf")) if times else float("nan")


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

    `clock` times the exchanges. Bodies of answers are kept only on request.
    """

    address: Address
    timeout: float = _TIMEOUT_SECONDS
    clock: Callable[[], float] = time.perf_counter
    keep_bodies: bool = False

    def closed_loop(
        self, requests: Iterable[bytes], clients: int, seconds: float = float("inf")
    ) -> Load:
        """Send each request once; each client sends the next when it has its answer.

        No request is sent after `seconds`.
        """

        def begin(connections: "_Connections") -> None:
            numbered = enumerate(requests)
            end = self.clock() + seconds

            def send_next(_: Exchange | None = None) -> None:
                now = self.clock()
                following = next(numbered, None) if now < end else None
                if following is not None:
                    connections.send(*following, now, send_next)

            for _ in range(clients):
                send_next()

        return self._run(begin)

    def open_loop(self, requests: Sequence[bytes], times: Sequence[float]) -> Load:
        """Send one request at each of `times`, in seconds from now, taking `requests` in turns."""

        def begin(connections: "_Connections") -> None:
            loop = asyncio.get_running_loop()
            start, start_of_loop = self.clock(), loop.time()

            def send(number: int) -> None:
                request = requests[number % len(requests)]
                connections.send(number, request, start + times[number], lambda _: None)
                schedule(number + 1)
                connections.release()

            def schedule(number: int) -> None:
                if number < len(times):
                    connections.hold()
                    # When late, at once, but after the answers that have arrived.
                    loop.call_at(start_of_loop + times[number], send, number)

            schedule(0)

        return self._run(begin)

    def _run(self, begin: Callable[["_Connections"], None]) -> Load:
        async def run() -> tuple[list[Exchange], float]:
            connections = _Connections(self)
            before = time.process_time()
            begin(connections)
            connections.release()
            await connections.finished()
            seconds = time.process_time() - before
            await connections.close()
            return connections.exchanges, seconds

        with _no_garbage_collection(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            exchanges, seconds = runner.run(run())
        return Load(tuple(sorted(exchanges, key=lambda item: item.number)), seconds)


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


class _Connections:
    """The open connections to a server, as many as are needed at once. Callbacks, no tasks.

    A run is over when nothing holds it any more: every request under way holds it, and so
    does whoever will send more.
    """

    def __init__(self, generator: Generator) -> None:
        self.exchanges: list[Exchange] = []
        self._generator = generator
        self._holds = 1
        self._free: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._finished = asyncio.Event()

    def hold(self) -> None:
        """The run goes on until this is released."""
        self._holds += 1

    def release(self) -> None:
        """Undo one `hold`, or the one that a run begins with."""
        self._holds -= 1
        if not self._holds:
            self._finished.set()

    def send(self, number: int, request: bytes, due: float, then: _OnExchange) -> None:
        """Send a request over a free connection; `then` gets the exchange."""
        self.hold()

        def on_answer(status: int, body: bytes) -> None:
            kept = body if self._generator.keep_bodies else b""
            exchange = Exchange(number, due, self._generator.clock(), status, kept)
            self.exchanges.append(exchange)
            then(exchange)
            self.release()

        while self._free:
            # The one that was used last, unless the server closed it: its buffers are warm.
            connection = self._free.pop()
            if connection.usable:
                self._write(connection, request, on_answer)
                return
        opening = asyncio.create_task(self._open(request, on_answer))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, request: bytes, on_answer: _OnAnswer) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._generator.timeout):
                _, connection = await loop.create_connection(_Connection, *self._generator.address)
        except OSError:  # a timeout, too
            on_answer(_UNANSWERED, b"")
        else:
            self._write(connection, request, on_answer)

    def _write(self, connection: "_Connection", request: bytes, on_answer: _OnAnswer) -> None:
        def free_and_answer(status: int, body: bytes) -> None:
            self._busy.discard(connection)
            if connection.usable:
                self._free.append(connection)
            on_answer(status, body)

        self._busy.add(connection)
        connection.send(request, free_and_answer)

    async def finished(self) -> None:
        """Wait for the end of the run; close connections that had no answer for too long."""
        while not self._finished.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), _SWEEP_SECONDS)
            oldest = time.monotonic() - self._generator.timeout
            for connection in [item for item in self._busy if item.sent_at < oldest]:
                connection.abort()

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._free:
            connection.abort()
        await asyncio.gather(*(connection.closed for connection in self._free))


class _Connection(asyncio.Protocol):
    """One request at a time; its answer is (status, body), or (0, nothing) if none came."""

    def __init__(self) -> None:
        self.usable = True
        self.sent_at = 0.0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_answer: _OnAnswer | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        # By its interface: uvloop's transports are of no such class.
        self._transport = cast("asyncio.Transport", transport)

    def send(self, request: bytes, on_answer: _OnAnswer) -> None:
        """Write a request; `on_answer` gets the answer, or learns that none will come."""
        self.sent_at = time.monotonic()
        self._on_answer = on_answer
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Read an answer once all of it is there."""
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator or len(body) < _content_length(head):
            return
        self._buffer = b""
        status = head[9:12]
        if not (head.startswith(b"HTTP/1.") and status.isdigit()):
            self.abort()  # not HTTP, so this is no answer
            return
        if b"connection: close" in head.lower():
            self.abort()
        self._answer(int(status), body)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The request that was sent, if any, gets no answer."""
        self.usable = False
        self._answer(_UNANSWERED, b"")
        if not self.closed.done():
            self.closed.set_result(None)

    def abort(self) -> None:
        """Close the connection; no further request uses it."""
        self.usable = False
        self._transport.abort()

    def _answer(self, status: int, body: bytes) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(status, body)


def _content_length(head: bytes) -> int:
    """The length of the body; a server that is loaded here always states it."""
    _, _, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0] or 0)
