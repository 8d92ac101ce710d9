"""Slow, endless and nonsensical connections, by raw sockets against a real server."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests

from tests.support import forged, pictures
from tests.support.clients import web
from tests.support.metrics_page import metrics, value
from tests.support.processes import DEADLINE_SECONDS, Server, until
from tests.support.sockets import address, connect, problem, until_closed

PNG = pictures.png()
LIMITS = {
    "header-timeout-seconds": "1",
    "body-timeout-seconds": "1",
    "min-body-rate": "1000",
    "keep-alive-seconds": "2",
    "max-header-bytes": "4000",
    "max-body-bytes": "1000000",
    "write-timeout-seconds": "1",
}
START = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
CLASSIFY = START + f"Content-Length: {len(PNG)}\r\n\r\n".encode() + PNG


@pytest.fixture(scope="module")
def strict(models: Path) -> Iterator[Server]:
    """A server with little patience."""
    flags = [part for name, limit in LIMITS.items() for part in (f"--{name}", limit)]
    with Server("--models", str(models), *flags) as running:
        yield running


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
        (CHUNKED + b"X-Endless: " + b"x" * 500_000, (431, "oversized-headers")),
        (CHUNKED + b"X-Long: " + b"x" * 4_000 + b"\r\n\r\n", (431, "oversized-headers")),
        (CHUNKED + b"X: y\r\n" * 200 + b"\r\n", (431, "oversized-headers")),
        (START + b"Transfer-Encoding: chunked\r\n\r\nnonsense", (400, "invalid-request")),
        (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", (400, "invalid-request")),
        (b"GET http://[x/ HTTP/1.1\r\nHost: x\r\n\r\n", (400, "invalid-request")),
    ],
    ids=[
        "nothing",
        "half a method",
        "half of the headers",
        "no body",
        "half a body",
        "half a chunked body",
        "an endless header",
        "a long header",
        "an endless path",
        "many headers",
        "no HTTP",
        "two lengths",
        "an endless trailer",
        "a long trailer",
        "many trailers",
        "no chunk",
        "a tunnel",
        "no URL",
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
    last = CLASSIFY.replace(b"Host: x", b"Host: x\r\nConnection: close")
    with closing(connect(strict)) as connection:
        connection.sendall(CLASSIFY * 4 + last)
        assert until_closed(connection).count(b"HTTP/1.1 200 ") == 5


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (START + b"X-Long: " + b"x" * 4_000 + b"\r\n\r\n", (431, "oversized-headers")),
        (START + b"X-Endless: " + b"x" * 300_000, (431, "oversized-headers")),
        (b"hello\r\n\r\n", (400, "invalid-request")),
        (CHUNKED + b"X-Long: " + b"x" * 4_000 + b"\r\n\r\n", (431, "oversized-headers")),
    ],
    ids=["a long header", "an endless header", "no HTTP", "a long trailer"],
)
def test_a_rejection_waits_for_the_answers_before_it(
    strict: Server, second: bytes, expected: tuple[int, str]
) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(CLASSIFY * 2 + second)
        received = until_closed(connection)
    *answers, last = [b"HTTP/1.1 " + answer for answer in received.split(b"HTTP/1.1 ")[1:]]
    assert [answer[:13] for answer in answers] == [b"HTTP/1.1 200 "] * 2
    assert problem(last) == expected


@pytest.mark.parametrize(
    "upgrade",
    [
        # What Java's HttpClient sends unless it is told otherwise.
        b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAA\r\nUpgrade: h2c\r\n",
        b"connection: upgrade\r\nupgrade: websocket\r\n",
    ],
    ids=["h2c", "websocket"],
)
def test_another_protocol_is_offered_in_vain_and_the_body_is_read(
    strict: Server, upgrade: bytes
) -> None:
    offer = CLASSIFY.replace(b"Host: x\r\n", b"Host: x\r\n" + upgrade)
    last = CLASSIFY.replace(b"Host: x", b"Host: x\r\nConnection: close")
    with closing(connect(strict)) as connection:
        connection.sendall(offer)
        received = connection.recv(65_536)
        connection.sendall(last)
        received += until_closed(connection)
    assert received.count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize("together", [True, False], ids=["with its headers", "behind them"])
def test_a_body_that_reads_like_an_offer_stays_as_it_is(strict: Server, *, together: bool) -> None:
    comment = forged.png_chunk(b"tEXt", b"Comment\0\nUpgrade: h2c\n")  # with its checksum
    image = PNG[:33] + comment + PNG[33:]
    head = START + f"Content-Length: {len(image)}\r\nConnection: close\r\n".encode()
    with closing(connect(strict)) as connection:
        if together:
            connection.sendall(head + b"\r\n" + image)
        else:
            connection.sendall(head + b"Expect: 100-continue\r\n\r\n")
            assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(image)
        assert until_closed(connection).startswith(b"HTTP/1.1 200 ")


def test_an_offer_of_another_protocol_that_is_not_seen_in_time_is_rejected(strict: Server) -> None:
    offer = b"CONNECTION: UPGRADE\r\nUPGRADE: H2C\r\n"
    with closing(connect(strict)) as connection:
        connection.sendall(CLASSIFY.replace(b"Host: x\r\n", b"Host: x\r\n" + offer))
        assert problem(until_closed(connection)) == (400, "invalid-request")


def test_a_connection_takes_a_bounded_number_of_requests_ahead(strict: Server) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000)
        received = until_closed(connection)
    assert 0 < received.count(b"HTTP/1.1 200 ") <= 1_000
    assert problem(received[received.rindex(b"HTTP/1.1 ") :]) == (429, "overloaded")


def test_a_body_with_a_content_encoding_is_refused(strict: Server) -> None:
    headers = {"Content-Encoding": "gzip"}
    answer = web.post(f"{strict.url}/v1/classify", content=PNG, headers=headers)
    assert answer.status_code == 415
    assert "Content-Encoding" in answer.json()["detail"]


def test_a_stalled_body_does_not_hinder_others(strict: Server) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(START + b"Content-Length: 10\r\n\r\n")
        assert web.post(f"{strict.url}/v1/classify", content=PNG).status_code == 200


def test_an_answer_is_written_in_one_piece(strict: Server) -> None:
    with closing(connect(strict)) as connection:
        for _ in range(20):
            connection.sendall(CLASSIFY)
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
        (b"GET /", 200),
        (b"HEAD /", 200),
    ],
)
def test_every_kind_of_answer_comes_whole(strict: Server, line: bytes, status: int) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(line + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    length = int(
        dict(field.split(b": ", 1) for field in head.split(b"\r\n")[1:])[b"content-length"]
    )
    assert len(body) == (0 if line.startswith(b"HEAD") else length)


# More than the system keeps for a connection, so that the answer is there before it is sent.
LARGE = b"x" * 20_000_000
REJECTED = [
    ("/v1/classify", LARGE, {}, 413),
    ("/v1/classify", LARGE[:900_000], {"Content-Encoding": "gzip"}, 415),
    ("/nowhere", LARGE, {}, 404),
]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"), REJECTED, ids=["too large", "encoded", "unknown path"]
)
def test_urllib_sees_why_its_body_was_rejected(
    strict: Server, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    # It asks for "Connection: close" and sends all of the body before it reads.
    request = urllib.request.Request(f"{strict.url}{path}", body, headers)
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=DEADLINE_SECONDS)
    assert raised.value.code == status
    assert json.load(raised.value)["status"] == status


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"), REJECTED, ids=["too large", "encoded", "unknown path"]
)
def test_requests_sees_why_its_body_was_rejected(
    strict: Server, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    url = f"{strict.url}{path}"
    answer = requests.post(url, body, headers=headers, timeout=DEADLINE_SECONDS)
    assert answer.json()["status"] == status


def test_a_client_that_sends_on_sees_why_its_headers_were_rejected(strict: Server) -> None:
    with closing(connect(strict)) as connection:
        connection.sendall(START + b"X-Long: " + b"x" * 4_000 + b"\r\n\r\n" + LARGE[:2_000_000])
        assert problem(until_closed(connection)) == (431, "oversized-headers")


def test_a_client_that_reads_nothing_of_its_answer_is_disconnected(strict: Server) -> None:
    before = value(metrics(strict.url), "rejections_total", reason="unread-answer")
    with closing(socket.socket()) as connection:
        # Little room for an answer on this side, so that most of it stays on the other.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(DEADLINE_SECONDS)
        connection.connect(address(strict))
        question = b"GET /docs/assets/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\n\r\n"
        connection.sendall(question * 8)
        until(
            lambda: value(metrics(strict.url), "rejections_total", reason="unread-answer") > before
        )
        assert len(until_closed(connection)) < 1_000_000
