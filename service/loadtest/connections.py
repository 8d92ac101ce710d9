"""The generator's open connections: one request at a time on each, callbacks and no tasks.

A request is written as it lies in memory; of an answer only the status line and a few
headers are looked at. Requests beyond the last connection wait for a free one.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from service.loadtest.load import UNANSWERED, Exchange

__all__ = ["Address", "Connections", "Sender", "Watch"]

Address = tuple[str, int]
Watch = Callable[[list[Exchange]], None]
"""Called twice a second with all exchanges so far."""

_SWEEP_SECONDS = 0.5
_SERVER_TIMING = b"server-timing"

_OnExchange = Callable[[Exchange], None]
_OnAnswer = Callable[[int, bytes, bytes, str], None]
"""Called with the status, the headers in lower case, the body, and why there is no answer."""


class Sender(Protocol):
    """What connections need to know about whoever sends over them."""

    @property
    def address(self) -> Address:
        """Host and port to connect to."""

    @property
    def timeout(self) -> float:
        """Seconds after which a request without an answer is given up."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock that times the exchanges."""

    @property
    def max_connections(self) -> int:
        """Connections that may be open at once."""

    @property
    def keep_bodies(self) -> bool:
        """Whether exchanges have the bodies of their answers."""

    @property
    def keep_timings(self) -> bool:
        """Whether exchanges have the header `Server-Timing` of their answers."""

    @property
    def watch(self) -> Watch | None:
        """Who looks on, if anybody."""


class _Waiting(NamedTuple):
    since: float
    request: bytes
    on_answer: _OnAnswer


class Connections:
    """The open connections to a server, as many as are needed at once.

    A run is over when nothing holds it any more: every request under way holds it, and so
    does whoever will send more.
    """

    def __init__(self, sender: Sender) -> None:
        self.exchanges: list[Exchange] = []
        self._sender = sender
        self._holds = 1
        self._stopped = False
        self._under_way = 0
        self._free: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._waiting: deque[_Waiting] = deque()
        self._opening = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._finished = asyncio.Event()

    @property
    def under_way(self) -> int:
        """Requests that have neither an answer nor a reason why there is none."""
        return self._under_way

    def hold(self) -> None:
        """The run goes on until this is released."""
        self._holds += 1

    def release(self) -> None:
        """Undo one `hold`, or the one that a run begins with."""
        self._holds -= 1
        if not self._holds:
            self._finished.set()

    def send(
        self, number: int, request: bytes, due: float, then: _OnExchange, late: float = 0.0
    ) -> None:
        """Send a request over a free connection; `then` gets the exchange."""
        self.hold()
        self._under_way += 1
        sender = self._sender

        def on_answer(status: int, head: bytes, body: bytes, reason: str) -> None:
            if self._stopped:
                return
            ended = sender.clock()
            kept = body if sender.keep_bodies else b""
            received = len(head) + 4 + len(body) if status else 0
            timing = _header(head, _SERVER_TIMING) if sender.keep_timings else b""
            # By place, which takes a third of the time of names.
            exchange = Exchange(
                *(number, due, ended, status, kept, late, len(request), received, timing, reason)
            )
            self.exchanges.append(exchange)
            self._under_way -= 1
            then(exchange)
            self.release()

        while self._free:
            # The one that was used last, unless the server closed it: its buffers are warm.
            connection = self._free.pop()
            if connection.usable:
                self._write(connection, request, on_answer)
                return
        self._open_or_wait(_Waiting(time.monotonic(), request, on_answer))

    def _open_or_wait(self, waiting: _Waiting) -> None:
        if len(self._busy) + self._opening >= self._sender.max_connections:
            self._waiting.append(waiting)
            return
        self._opening += 1
        task = asyncio.create_task(self._open(waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, waiting: _Waiting) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._sender.timeout):
                _, connection = await loop.create_connection(_Connection, *self._sender.address)
        except (OSError, UnicodeError) as error:  # a timeout, too, and a name that is none
            self._opening -= 1
            if self._waiting:
                self._open_or_wait(self._waiting.popleft())
            reason = "timed out" if isinstance(error, TimeoutError) else _told(error)
            waiting.on_answer(UNANSWERED, b"", b"", reason)
        else:
            self._opening -= 1
            self._write(connection, waiting.request, waiting.on_answer)

    def _write(self, connection: "_Connection", request: bytes, on_answer: _OnAnswer) -> None:
        def free_and_answer(status: int, head: bytes, body: bytes, reason: str) -> None:
            self._busy.discard(connection)
            if self._waiting:
                on_answer(status, head, body, reason)
                self._serve_waiting(connection)
                return
            if connection.usable:
                self._free.append(connection)
            on_answer(status, head, body, reason)

        self._busy.add(connection)
        connection.send(request, free_and_answer)

    def _serve_waiting(self, connection: "_Connection") -> None:
        waiting = self._waiting.popleft()
        if connection.usable:
            self._write(connection, waiting.request, waiting.on_answer)
        else:
            self._open_or_wait(waiting)

    async def finished(self) -> None:
        """Wait for the end of the run; give up requests that had no answer for too long."""
        while not self._finished.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._finished.wait(), _SWEEP_SECONDS)
            self._give_up(time.monotonic() - self._sender.timeout)
            if self._sender.watch is not None:
                self._sender.watch(self.exchanges)

    def _give_up(self, oldest: float) -> None:
        for connection in [item for item in self._busy if item.sent_at < oldest]:
            connection.abort("timed out")
        while self._waiting and self._waiting[0].since < oldest:
            self._waiting.popleft().on_answer(UNANSWERED, b"", b"", "timed out")

    def stop(self) -> None:
        """No request under way becomes an exchange any more."""
        self._stopped = True

    async def close(self) -> None:
        """Close all connections."""
        connections = [*self._free, *self._busy]
        for connection in connections:
            connection.abort("")
        await asyncio.gather(*(connection.closed for connection in connections))


class _Connection(asyncio.Protocol):
    """One request at a time, and its answer, or the reason why there is none."""

    def __init__(self) -> None:
        self.usable = True
        self.sent_at = 0.0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_answer: _OnAnswer | None = None
        self._buffer = b""
        self._reason = "connection closed"

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
        if not separator:
            return
        head = head.lower()
        whole = _whole_body(head, body)
        if whole is None:
            return
        self._buffer = b""
        status = head[9:12]
        if not (head.startswith(b"http/1.") and status.isdigit()):
            self.abort("no HTTP")
            return
        if b"connection: close" in head:
            self.abort("connection closed")
        self._answer(int(status), head, whole, "")

    def connection_lost(self, exc: Exception | None) -> None:
        """The request that was sent, if any, gets no answer."""
        self.usable = False
        reason = _told(exc) if isinstance(exc, OSError) else self._reason
        self._answer(UNANSWERED, b"", b"", reason)
        if not self.closed.done():
            self.closed.set_result(None)

    def abort(self, reason: str) -> None:
        """Close the connection; no further request uses it."""
        self.usable = False
        self._reason = reason
        self._transport.abort()

    def _answer(self, status: int, head: bytes, body: bytes, reason: str) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(status, head, body, reason)


def _whole_body(head: bytes, received: bytes) -> bytes | None:
    """The body, once all of it is there; the service states its length, a proxy may not."""
    length = _header(head, b"content-length")
    if length or b"\r\ntransfer-encoding: chunked" not in head:
        return received if len(received) >= int(length or 0) else None
    body, rest = b"", received
    while True:
        size, separator, rest = rest.partition(b"\r\n")
        count = int(size.partition(b";")[0] or b"0", 16) if separator else 0
        if not separator or len(rest) < count + 2:
            return None
        if not count:
            return body
        body, rest = body + rest[:count], rest[count + 2 :]


def _header(head: bytes, name: bytes) -> bytes:
    """The value of a header among others in lower case; empty without it."""
    _, _, rest = head.partition(b"\r\n%b:" % name)
    return rest.partition(b"\r\n")[0].strip()


def _told(error: Exception) -> str:
    """What happened, in the words of the system."""
    return (getattr(error, "strerror", None) or str(error)).lower()
