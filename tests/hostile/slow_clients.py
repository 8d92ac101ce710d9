"""Clients that are as slow as they may be, and a good one among them.

`python -m tests.hostile.slow_clients HOST PORT COUNT` keeps so many connections open, in a
process of its own so that it takes nothing from the good client's: each sends a byte or a chunk
a second, reads nothing, or closes its half of the connection. One that the service has closed
is opened again.
"""

import asyncio
import socket
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.loadtest.generator import Generator
from tests.hostile.http import CHUNKED, GOOD, PNG, START
from tests.support.processes import ROOT, Server, environment
from tests.support.sockets import address

__all__ = ["SlowClients", "SlowResult", "compare"]

MOST = 2.0
"""By what factor the 99th percentile may grow."""
_REQUESTS = 1_500
_READY = "ready"


@dataclass(frozen=True)
class SlowClients:
    """How many of them, of all kinds together."""

    count: int

    @contextmanager
    def at(self, server: Server) -> Iterator[None]:
        """All of them are connected in this block."""
        host, port = address(server)
        command = [sys.executable, "-m", __spec__.name, host, str(port), str(self.count)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == _READY
            yield
        finally:
            process.kill()
            process.communicate()


@dataclass(frozen=True)
class SlowResult:
    """The good client's 99th percentiles in milliseconds, alone and among slow ones, by round."""

    count: int
    alone: list[float]
    among: list[float]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        pairs = zip(self.among, self.alone, strict=True)
        return statistics.median(among / alone for among, alone in pairs)

    def text(self) -> str:
        """The result for people."""
        alone, among = statistics.median(self.alone), statistics.median(self.among)
        return (
            f"{self.count} of {len(KINDS)} kinds: p99 {alone:.1f} ms alone, {among:.1f} ms among "
            f"them, ratio {self.ratio:.2f} (median of {len(self.alone)} rounds)"
        )

    def faults(self) -> list[str]:
        """Why this is not good enough."""
        if self.ratio <= MOST:
            return []
        return [f"slow clients made p99 {self.ratio:.2f} times as long, expected at most {MOST:g}"]


def compare(server: Server, slow: SlowClients, rounds: int) -> SlowResult:
    """Send good requests one after the other, in turns alone and among slow clients."""
    result = SlowResult(slow.count, [], [])
    request = GOOD.replace(b"Connection: close\r\n", b"")
    _p99(server, request)  # all that every service needs is there before
    for _ in range(rounds):
        result.alone.append(_p99(server, request))
        with slow.at(server):
            result.among.append(_p99(server, request))
    return result


def _p99(server: Server, request: bytes) -> float:
    load = Generator(address(server)).closed_loop([request] * _REQUESTS, clients=1)
    assert load.statuses == [200], load.statuses
    return load.quantile(0.99) * 1e3


# -- The slow clients themselves --------------------------------------------------------


class _Client:
    """One connection; each kind says what to send, and when it says no more, it waits."""

    def __init__(self, host: str, port: int, kind: Callable[[], AsyncIterator[bytes]]) -> None:
        self._address = (host, port)
        self._kind = kind
        self.connected = asyncio.Event()

    async def run(self, delay: float) -> None:
        """Connect again and again; clients that know nothing of each other are not in step."""
        await asyncio.sleep(delay)
        while True:
            try:
                await self._connect()
            except OSError:
                await asyncio.sleep(1)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            if self._kind in (unread, half_closed):
                # So that most of an answer stays with the service.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.settimeout(0)  # as the event loop wants it
            await loop.sock_connect(connection, self._address)
            self.connected.set()
            async for piece in self._kind():
                await loop.sock_sendall(connection, piece)
            if self._kind is half_closed:
                connection.shutdown(socket.SHUT_WR)
            if self._kind is unread:
                await asyncio.sleep(30)
            await loop.sock_recv(connection, 1)
            await asyncio.sleep(1)


async def _drip(head: bytes, pieces: bytes | list[bytes]) -> AsyncIterator[bytes]:
    yield head
    for piece in pieces:
        await asyncio.sleep(1)
        yield bytes([piece]) if isinstance(piece, int) else piece


def headers() -> AsyncIterator[bytes]:
    return _drip(START, b"X-Slow: " + b"x" * 60)


def body() -> AsyncIterator[bytes]:
    return _drip(GOOD[: -len(PNG)], PNG[:60])


def chunks() -> AsyncIterator[bytes]:
    return _drip(CHUNKED + b"\r\n", [b"1\r\n%c\r\n" % byte for byte in PNG[:60]])


def trailers() -> AsyncIterator[bytes]:
    chunk = b"%x\r\n" % len(PNG) + PNG + b"\r\n0\r\n"
    return _drip(CHUNKED + b"\r\n" + chunk, b"X-Slow: " + b"x" * 60)


def unread() -> AsyncIterator[bytes]:
    return _drip(b"GET /docs/assets/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\n\r\n", b"")


def half_closed() -> AsyncIterator[bytes]:
    return _drip(GOOD[:-9], b"")


KINDS = (headers, body, chunks, trailers, unread, half_closed)


async def _run(host: str, port: int, count: int) -> None:
    clients = [_Client(host, port, KINDS[number % len(KINDS)]) for number in range(count)]
    tasks = [asyncio.create_task(client.run(i / count)) for i, client in enumerate(clients)]
    for client in clients:
        await client.connected.wait()
    sys.stdout.write(f"{_READY}\n")
    sys.stdout.flush()
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
