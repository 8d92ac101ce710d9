"""More connections and more bytes than there is room for, against a real server."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.support import pictures
from tests.support.metrics_page import metrics, value
from tests.support.processes import Server, until
from tests.support.sockets import connect, problem, until_closed

PNG = pictures.png()
START = (
    "POST /v1/classify HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n"
)


def stall(connection: socket.socket, size: int, sent: int) -> None:
    """Begin a request; when the service has asked for its body, send some of it."""
    connection.sendall(START.format(size).encode())
    assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(b"x" * sent)


@pytest.fixture(scope="module")
def crowded(models: Path) -> Iterator[Server]:
    """A server with room for few connections and few bytes."""
    limits = (
        *("--max-connections", "8", "--workers", "1"),
        *("--transfer-bytes", "1000000", "--max-body-bytes", "1000000"),
    )
    with Server("--models", str(models), *limits) as running:
        yield running


@pytest.fixture
def opened(crowded: Server) -> Iterator[Callable[[], socket.socket]]:
    """Opens connections, and closes them at the end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(connect(crowded)))


def test_an_idle_connection_makes_room_for_a_request(
    opened: Callable[[], socket.socket],
) -> None:
    idle = [opened() for _ in range(20)]
    assert probe(opened()).startswith(b"HTTP/1.1 200 ")
    assert idle[0].recv(1) == b""


def test_a_connection_beyond_the_most_is_answered_503_and_closed(
    opened: Callable[[], socket.socket],
) -> None:
    busy = [opened() for _ in range(8)]
    for connection in busy:
        stall(connection, 1_000, 10)
    received = until_closed(opened())
    assert problem(received) == (503, "no-connection")
    assert b"\r\nretry-after: 1\r\n" in received
    busy[0].close()
    until(lambda: probe(opened()).startswith(b"HTTP/1.1 200 "))


def probe(connection: socket.socket) -> bytes:
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    return until_closed(connection)


def test_the_body_that_stalls_longest_is_answered_429_when_there_is_no_room(
    crowded: Server, opened: Callable[[], socket.socket]
) -> None:
    def held() -> float:
        return value(metrics(crowded.url), "transfer_bytes")

    first, second = opened(), opened()
    stall(first, 800_000, 600_000)
    until(lambda: held() == 600_000)
    stall(second, 800_000, 600_000)
    assert first.recv(65_536).startswith(b"HTTP/1.1 429 ")
    until(lambda: held() == 600_000)
    second.sendall(b"x" * 200_000)
    # Complete, though it is no image.
    assert second.recv(65_536).startswith(b"HTTP/1.1 415 ")
    assert held() == 0
