"""How answers are written: at once where their size is known, otherwise as uvicorn does it."""

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.transports import KEEP_ALIVE, connect
from tests.support.virtual_time import on_virtual_time, settle

LENGTH = (b"content-length", b"5")


class Application:
    """Answers every request with the same messages."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = messages

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        for message in self.messages:
            await send(dict(message))


def start(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": [LENGTH, *headers]}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


WHOLE = (start((b"a", b"b")), body(b"12345"))


def request(method: str = "GET", version: str = "1.1", *headers: str) -> bytes:
    lines = (f"{method} /a%20b?c=d HTTP/{version}", "Host: x", *headers, "", "")
    return "\r\n".join(lines).encode()


@on_virtual_time
async def test_an_answer_of_known_size_is_one_write() -> None:
    protocol, transport = connect(Application(*WHOLE))
    protocol.data_received(request())
    await settle()
    expected = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\na: b\r\n\r\n12345"
    assert transport.writes == [expected]
    assert not transport.is_closing()


@on_virtual_time
async def test_an_answer_in_pieces_comes_piece_by_piece() -> None:
    protocol, transport = connect(
        Application(start(), body(b"12", more=True), body(b"345", more=False))
    )
    protocol.data_received(request())
    await settle()
    assert b"".join(transport.writes) == b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12345"
    assert transport.writes[-1] == b"345"


@on_virtual_time
async def test_the_answer_to_head_has_no_body() -> None:
    protocol, transport = connect(Application(*WHOLE))
    protocol.data_received(request("HEAD"))
    await settle()
    assert b"".join(transport.writes).endswith(b"a: b\r\n\r\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"a", b"b\r\nset-cookie: c"),
        (b"a", b"b\nc: d"),
        (b"a", b"b\rc"),
        (b"a", b"\x00"),
        (b"a\r\nb", b"c"),
    ],
    ids=["line", "line-feed", "carriage-return", "nul", "name"],
)
@on_virtual_time
async def test_no_header_can_hold_another_one(name: bytes, value: bytes) -> None:
    protocol, transport = connect(Application(start((name, value)), body(b"12345")))
    protocol.data_received(request())
    await settle()
    written = b"".join(transport.writes)
    assert value not in written
    assert name + b":" not in written
    assert b"200 OK" not in written


@on_virtual_time
async def test_a_body_of_another_size_than_stated_ends_the_connection() -> None:
    protocol, transport = connect(Application(start(), body(b"123456")))
    protocol.data_received(request())
    await settle()
    assert b"123456" not in b"".join(transport.writes)
    assert transport.half_closed or transport.is_closing()


@pytest.mark.parametrize(
    ("version", "header"), [("1.0", "A: b"), ("1.1", "Connection: close")], ids=["1.0", "close"]
)
@on_virtual_time
async def test_a_last_answer_says_so_and_closes(version: str, header: str) -> None:
    protocol, transport = connect(Application(*WHOLE))
    protocol.data_received(request("GET", version, header))
    await settle()
    assert b"\r\nconnection: close\r\n" in transport.writes[0]
    assert transport.is_closing()


@on_virtual_time
async def test_an_application_that_asks_to_close_is_heard() -> None:
    protocol, transport = connect(Application(start((b"connection", b"close")), body(b"12345")))
    protocol.data_received(request())
    await settle()
    assert b"".join(transport.writes).count(b"connection: close") == 1
    assert transport.is_closing()


@on_virtual_time
async def test_a_connection_rests_for_as_long_after_its_last_answer_as_after_its_first() -> None:
    loop = asyncio.get_running_loop()
    protocol, transport = connect(Application(*WHOLE))
    for _ in range(3):
        protocol.data_received(request())
        await settle()
        await asyncio.sleep(KEEP_ALIVE * 0.6)
        assert not transport.is_closing()
    rested_since = loop.time() - KEEP_ALIVE * 0.6
    await asyncio.sleep(KEEP_ALIVE)
    await asyncio.sleep(0.1)
    # Behind one last look for bytes, 50 ms later.
    assert transport.closed_at == pytest.approx(rested_since + KEEP_ALIVE + 0.05)


@on_virtual_time
async def test_the_scope_says_what_the_request_line_says() -> None:
    scopes: list[Scope] = []

    class Recorder(Application):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            scopes.append(scope)
            await super().__call__(scope, receive, send)

    protocol, _ = connect(Recorder(*WHOLE))
    protocol.data_received(request("PUT", "1.0"))
    await settle()
    names = ("method", "http_version", "path", "raw_path", "query_string", "root_path")
    found = [scopes[0][name] for name in names]
    assert found == ["PUT", "1.0", "/a b", b"/a%20b", b"c=d", ""]
