"""The protocol's timers and what it notes of a request, on a virtual clock without sockets."""

import asyncio

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from service.http.disconnect import RequestProgress, progress_of, while_connected
from tests.support.transports import CLOSE_LIMITS, HEADER_LIMITS, KEEP_ALIVE, connect
from tests.support.virtual_time import on_virtual_time, settle

HEADERS = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


class Application:
    """Reads the body and answers 204; keeps the scopes and errors of its requests."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.errors: list[BaseException] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Queued(Application):
    """Waits for ever in a queue."""

    async def __call__(self, scope: Scope, _: Receive, __: Send) -> None:
        try:
            await while_connected(scope, asyncio.Event().wait(), queued=True)
        except ClientDisconnect as error:
            self.errors.append(error)


@on_virtual_time
async def test_a_connection_may_live_longer_than_its_headers_may_take() -> None:
    protocol, transport = connect(Application())
    for _ in range(5):
        protocol.data_received(HEADERS + b"body")
        await asyncio.sleep(HEADER_LIMITS.timeout * 0.9)
    assert transport.statuses == [b"204"] * 5
    assert not transport.closed


@on_virtual_time
async def test_a_request_that_came_while_the_service_stalled_is_answered() -> None:
    protocol, transport = connect(Application())
    protocol.data_received(HEADERS + b"body")
    # An event loop that stalled runs its timers before it reads what came meanwhile.
    await asyncio.sleep(KEEP_ALIVE)
    protocol.data_received(HEADERS + b"body")
    await asyncio.sleep(KEEP_ALIVE / 2)
    assert transport.statuses == [b"204"] * 2
    assert not transport.closed


@on_virtual_time
async def test_headers_that_begin_and_never_end_are_answered_in_time() -> None:
    protocol, transport = connect(Application())
    protocol.data_received(HEADERS + b"body")
    await settle()
    protocol.data_received(HEADERS[:20])
    await asyncio.sleep(HEADER_LIMITS.timeout - 0.1)
    assert transport.statuses == [b"204"]
    await asyncio.sleep(0.2)
    assert transport.statuses == [b"204", b"408"]
    assert transport.half_closed


@on_virtual_time
async def test_headers_byte_by_byte_have_one_timeout_in_all() -> None:
    protocol, transport = connect(Application())
    for start in range(11):
        protocol.data_received(HEADERS[start : start + 1])
        await asyncio.sleep(HEADER_LIMITS.timeout / 10)
    assert transport.statuses == [b"408"]


@on_virtual_time
async def test_a_body_is_received_when_its_last_byte_is_there() -> None:
    application = Application()
    protocol, _ = connect(application)
    protocol.data_received(HEADERS + b"bo")
    await settle()
    progress = progress_of(application.scopes[0])
    assert progress is not None
    assert not progress.received
    protocol.data_received(b"dy")
    assert progress.received


@on_virtual_time
async def test_a_trailer_is_no_header_of_the_request() -> None:
    application = Application()
    protocol, transport = connect(application)
    protocol.data_received(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    protocol.data_received(b"0\r\nAuthorization: Bearer x\r\n\r\n")
    await settle()
    assert transport.statuses == [b"204"]
    assert application.scopes[0]["headers"] == [(b"transfer-encoding", b"chunked")]


@on_virtual_time
async def test_a_queued_request_ends_when_its_client_disconnects() -> None:
    application = Queued()
    protocol, _ = connect(application)
    protocol.data_received(HEADERS + b"body")
    await settle()
    assert application.errors == []
    protocol.connection_lost(None)
    await settle()
    assert [type(error) for error in application.errors] == [ClientDisconnect]


@on_virtual_time
async def test_work_is_not_begun_for_a_client_that_is_gone_already() -> None:
    begun = False

    async def work() -> None:
        nonlocal begun
        begun = True

    scope: Scope = {}
    RequestProgress(scope).leave()
    with pytest.raises(ClientDisconnect):
        await while_connected(scope, work(), queued=True)
    assert not begun


EARLY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\nConnection: close\r\n\r\n"


class Early(Application):
    """Answers 204 without reading the body."""

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@on_virtual_time
async def test_what_comes_behind_the_last_answer_is_discarded_for_a_while() -> None:
    protocol, transport = connect(Early())
    protocol.data_received(EARLY)
    await settle()
    assert transport.statuses == [b"204"]
    assert (transport.half_closed, transport.closed) == (True, False)
    protocol.data_received(b"x" * CLOSE_LIMITS.drain_bytes)
    await asyncio.sleep(CLOSE_LIMITS.drain_timeout - 0.1)
    assert not transport.closed
    await asyncio.sleep(0.2)
    assert transport.closed


@on_virtual_time
async def test_a_bounded_number_of_bytes_is_discarded_behind_the_last_answer() -> None:
    protocol, transport = connect(Early())
    protocol.data_received(EARLY)
    await settle()
    protocol.data_received(b"x" * (CLOSE_LIMITS.drain_bytes + 1))
    assert transport.closed


@on_virtual_time
async def test_a_connection_is_closed_at_once_behind_the_answer_to_a_whole_request() -> None:
    protocol, transport = connect(Early())
    protocol.data_received(EARLY + b"x" * 5_000)
    await settle()
    assert transport.statuses == [b"204"]
    assert transport.closed


@on_virtual_time
async def test_an_answer_is_given_up_when_its_client_reads_nothing_of_it() -> None:
    protocol, transport = connect(Application())
    protocol.data_received(HEADERS + b"body")
    await settle()
    transport.unsent = 1_000
    protocol.pause_writing()
    await asyncio.sleep(CLOSE_LIMITS.write_timeout - 0.1)
    assert not transport.closed
    await asyncio.sleep(0.2)
    assert transport.closed


@on_virtual_time
async def test_an_answer_may_not_be_read_as_slowly_as_one_likes() -> None:
    protocol, transport = connect(Application())
    protocol.data_received(HEADERS + b"body")
    await settle()
    transport.unsent = 10_000
    protocol.pause_writing()
    await asyncio.sleep(CLOSE_LIMITS.write_timeout - 0.1)
    transport.unsent -= 199
    await asyncio.sleep(0.2)
    assert transport.closed


@on_virtual_time
async def test_an_answer_may_be_read_slowly() -> None:
    protocol, transport = connect(Application())
    protocol.data_received(HEADERS + b"body")
    await settle()
    transport.unsent = 10_000
    protocol.pause_writing()
    for _ in range(10):
        await asyncio.sleep(CLOSE_LIMITS.write_timeout - 0.1)
        transport.unsent -= 200
        await asyncio.sleep(0.1)
    assert not transport.closed
    protocol.resume_writing()
    await asyncio.sleep(CLOSE_LIMITS.write_timeout * 2)
    assert not transport.closed


@on_virtual_time
async def test_a_request_that_crosses_the_end_of_the_service_is_answered() -> None:
    protocol, transport = connect(Application())
    protocol.data_received(HEADERS + b"body")
    await settle()
    protocol.shutdown()
    await asyncio.sleep(0.5)
    protocol.data_received(HEADERS + b"body")
    await settle()
    assert transport.statuses == [b"204", b"204"]
    assert transport.written.count(b"connection: close") == 1
    assert transport.closed


@pytest.mark.parametrize("answered", [0, 1])
@on_virtual_time
async def test_an_idle_connection_is_closed_soon_after_the_service_stops(answered: int) -> None:
    protocol, transport = connect(Application())
    protocol.data_received((HEADERS + b"body") * answered)
    await settle()
    protocol.shutdown()
    await asyncio.sleep(1)
    assert transport.statuses == [b"204"] * answered
    assert transport.closed


@on_virtual_time
async def test_headers_that_have_begun_may_end_after_the_service_stops() -> None:
    protocol, transport = connect(Application())
    protocol.data_received(HEADERS[:20])
    protocol.shutdown()
    await asyncio.sleep(HEADER_LIMITS.timeout / 2)
    protocol.data_received(HEADERS[20:] + b"body")
    await settle()
    assert transport.statuses == [b"204"]
    assert b"connection: close" in transport.written
    assert transport.closed


@on_virtual_time
async def test_a_connection_is_idle_from_its_start_or_its_last_answer_that_was_read() -> None:
    protocol, transport = connect(Application())
    assert protocol.idle_since() == 0.0
    await asyncio.sleep(3)
    protocol.data_received(HEADERS[:20])
    assert protocol.idle_since() == 3.0
    protocol.data_received(HEADERS[20:] + b"body")
    assert protocol.idle_since() is None
    await settle()
    await asyncio.sleep(2)
    assert protocol.idle_since() == 3.0
    transport.unsent = 10
    protocol.pause_writing()
    assert protocol.idle_since() is None
