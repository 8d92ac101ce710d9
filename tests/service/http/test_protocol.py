"""Slow, endless and nonsensical connections, by raw sockets against a real server."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.support import pictures
from tests.support.metrics_page import metrics, value
from tests.support.processes import DEADLINE_SECONDS, Server

PNG = pictures.png()
LIMITS = {
    "header-timeout-seconds": "1",
    "body-timeout-seconds": "1",
    "min-body-rate": "1000",
    "keep-alive-seconds": "2",
    "max-header-bytes": "4000",
}
START = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def strict(models: Path) -> Iterator[Server]:
    """A server with little patience."""
    flags = [part for name, limit in LIMITS.items() for part in (f"--{name}", limit)]
    with Server("--models", str(models), *flags) as running:
        yield running


def connect(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), DEADLINE_SECONDS)


def until_closed(connection: socket.socket) -> bytes:
    """All that the server sends before it hangs up."""
    received = b""
    try:
        while data := connection.recv(65_536):
            received += data
    except ConnectionResetError:
        pass
    return received


def problem(answer: bytes) -> tuple[int, str]:
    """Status and reason of the only answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    document = json.loads(body)
    assert document["status"] == int(head.split()[1])
    return document["status"], document["type"].rpartition(":")[2]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", (408, "slow-headers")),
        (b"PO", (408, "slow-headers")),
        (START, (408, "slow-headers")),
        (START + b"Content-Length: 10\r\n\r\n", (408, "slow-body")),
        (START + b"Content-Length: 10\r\n\r\nabc", (408, "slow-body")),
        (START + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", (408, "slow-body")),
        (START + b"X-Endless: " + b"x" * 300_000, (431, "oversized-headers")),
        (START + b"X-Long: " + b"x" * 4_000 + b"\r\n\r\n", (431, "oversized-headers")),
        (b"GET /" + b"x" * 5_000, (431, "oversized-headers")),
        (START + b"X: y\r\n" * 200 + b"\r\n", (431, "oversized-headers")),
        (b"hello\r\n\r\n", (400, "invalid-request")),
        (
            START + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            (400, "invalid-request"),
        ),
    ],
)
def test_a_bad_connection_is_answered_and_closed(
    strict: Server, sent: bytes, expected: tuple[int, str]
) -> None:
    before = metrics(strict.url)
    with closing(connect(strict)) as connection:
        connection.sendall(sent)
        assert problem(until_closed(connection)) == expected
    after, reason = metrics(strict.url), expected[1]
    name = "rejections_total"
    assert value(after, name, reason=reason) == value(before, name, reason=reason) + 1


def drip(connection: socket.socket, piece: bytes, seconds: float) -> bytes:
    """Send a piece, listen for so long, and again until the server hangs up."""
    received = b""
    connection.settimeout(seconds)
    while True:
        try:
            connection.sendall(piece)
            data = connection.recv(65_536)
        except TimeoutError:
            continue
        except OSError:
            return received
        if not data:
            return received
        received += data


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (START + b"X-Slow: ", (408, "slow-headers")),
        (START + b"Content-Length: 100000\r\n\r\n", (408, "slow-body")),
    ],
)
def test_a_byte_now_and_then_does_not_keep_a_connection(
    strict: Server, head: bytes, expected: tuple[int, str]
) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(head)
        assert problem(drip(connection, b"x", 0.2)) == expected


def test_the_rest_of_a_refused_body_does_not_keep_a_connection(strict: Server) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        answer = drip(connection, b"x", 0.2)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_an_idle_connection_is_closed_without_a_word(strict: Server) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = until_closed(connection)
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_requests_may_follow_each_other_without_waiting(strict: Server) -> None:
    body = START + f"Content-Length: {len(PNG)}\r\n\r\n".encode() + PNG
    last = body.replace(b"Host: x", b"Host: x\r\nConnection: close")
    with closing(connect(strict)) as connection:
        connection.sendall(body * 4 + last)
        assert until_closed(connection).count(b"HTTP/1.1 200 ") == 5


def test_a_body_with_a_content_encoding_is_refused(strict: Server) -> None:
    headers = {"Content-Encoding": "gzip"}
    answer = httpx.post(f"{strict.url}/v1/classify", content=PNG, headers=headers)
    assert answer.status_code == 415
    assert "Content-Encoding" in answer.json()["detail"]


def test_a_stalled_body_does_not_hinder_others(strict: Server) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(START + b"Content-Length: 10\r\n\r\n")
        assert httpx.post(f"{strict.url}/v1/classify", content=PNG).status_code == 200


def test_an_answer_is_written_in_one_piece(strict: Server) -> None:
    request = START + f"Content-Length: {len(PNG)}\r\n\r\n".encode() + PNG
    with closing(connect(strict)) as connection:
        for _ in range(20):
            connection.sendall(request)
            head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert json.loads(body)["predictions"]


def test_a_client_that_waits_for_continue_gets_it_before_its_answer(strict: Server) -> None:
    head = START + f"Content-Length: {len(PNG)}\r\nExpect: 100-continue\r\n".encode()
    with closing(connect(strict)) as connection:
        connection.sendall(head + b"Connection: close\r\n\r\n")
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(PNG)
        assert until_closed(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"HEAD /v1/classify", 405),
        (b"HEAD /docs", 405),
        (b"GET /docs", 200),
        (b"GET /docs/assets/swagger-ui.css", 200),
        (b"GET /", 307),
    ],
)
def test_every_kind_of_answer_comes_whole(strict: Server, line: bytes, status: int) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(line + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    length = int(dict(field.split(b": ") for field in head.split(b"\r\n")[1:])[b"content-length"])
    assert len(body) == (0 if line.startswith(b"HEAD") else length)
