"""The pace of a body, without a network."""

import asyncio
import gc
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from service.errors import OverloadedError, OversizedBodyError, RequestError, SlowBodyError
from service.http.body import BodyLimits, LimitBodies, read_files
from service.http.traffic import Traffic
from tests.support.virtual_time import on_virtual_time, settle

SCOPE: Scope = {"type": "http", "headers": []}
ROOM = Traffic(max_connections=1, max_bytes=1_000)


async def ignore(_: Message) -> None:
    """Nobody reads the answer."""


def read(pieces: Iterable[int], limits: BodyLimits) -> tuple[int, type[Exception]]:
    """The bytes that an application gets of a stalling body in such pieces, and the error."""
    left = list(pieces)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"x" * left.pop(0), "more_body": True}

    got = 0

    async def application(_: Scope, receive: Receive, __: Send) -> None:
        nonlocal got
        while True:
            got += len((await receive())["body"])

    with pytest.raises(RequestError) as raised:
        asyncio.run(LimitBodies(application, limits, ROOM)(SCOPE, receive, ignore))
    return got, raised.type


def test_a_body_is_read_until_it_stalls() -> None:
    assert read([5, 6, 7], BodyLimits(100, 0.05, 1, 60)) == (18, SlowBodyError)


def test_a_body_is_read_until_it_is_too_large() -> None:
    assert read([60, 40, 1], BodyLimits(100, 60.0, 1, 60)) == (100, OversizedBodyError)


def test_waiting_for_the_client_to_leave_has_no_limit() -> None:
    async def receive_all() -> list[str]:
        messages: list[Message] = [{"type": "http.request", "body": b"x"}]
        gone = asyncio.Event()

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        kinds = []

        async def application(_: Scope, receive: Receive, __: Send) -> None:
            kinds.append((await receive())["type"])
            asyncio.get_running_loop().call_later(0.05, gone.set)
            kinds.append((await receive())["type"])

        await LimitBodies(application, BodyLimits(10, 0.001, 1, 1), ROOM)(SCOPE, receive, ignore)
        return kinds

    assert asyncio.run(receive_all()) == ["http.request", "http.disconnect"]


class Upload:
    """A request whose body comes when a test says so, and what became of it."""

    def __init__(self, limits: BodyLimits, traffic: Traffic) -> None:
        self._pieces: asyncio.Queue[Message] = asyncio.Queue()
        app = LimitBodies(self._read, limits, traffic)
        self._task = asyncio.ensure_future(app(SCOPE, self._pieces.get, ignore))

    async def _read(self, _: Scope, receive: Receive, __: Send) -> None:
        while (await receive()).get("more_body"):
            pass

    async def send(self, size: int, *, more: bool = True) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": more})
        await settle()

    @property
    def outcome(self) -> object:
        """The kind of its error, None if all was read, or False while it goes on."""
        return self._task.done() and (
            type(self._task.exception()) if self._task.exception() else None
        )


@on_virtual_time
async def test_a_body_has_a_time_in_all_however_steadily_it_comes() -> None:
    upload = Upload(BodyLimits(10_000, 10, 1, 60), ROOM)
    for _ in range(7):
        await upload.send(100)
        assert upload.outcome is False
        await asyncio.sleep(8.7)
    await settle()
    assert upload.outcome is SlowBodyError


@on_virtual_time
async def test_the_body_that_waits_longest_makes_room_for_others() -> None:
    traffic = Traffic(max_connections=1, max_bytes=1_000)
    limits = BodyLimits(1_000, 10, 1, 60)
    stalled, steady, late = [Upload(limits, traffic) for _ in range(3)]
    await stalled.send(300)
    await asyncio.sleep(1)
    await steady.send(300)
    await late.send(400)
    assert traffic.bytes == 1_000
    await steady.send(1)
    assert stalled.outcome is OverloadedError
    assert traffic.bytes == 701
    await steady.send(1, more=False)
    await late.send(1, more=False)
    assert (steady.outcome, late.outcome) == (None, None)
    assert traffic.bytes == 0


@on_virtual_time
async def test_a_body_for_which_there_is_no_room_at_all_costs_no_other() -> None:
    traffic = Traffic(max_connections=1, max_bytes=1_000)
    limits = BodyLimits(5_000, 10, 1, 60)
    small, large = Upload(limits, traffic), Upload(limits, traffic)
    await small.send(10)
    await large.send(1_001)
    assert (small.outcome, large.outcome) == (False, OverloadedError)
    assert traffic.bytes == 10
    await small.send(1, more=False)


@on_virtual_time
async def test_a_body_that_fails_holds_no_bytes() -> None:
    traffic = Traffic(max_connections=1, max_bytes=1_000)
    upload = Upload(BodyLimits(100, 10, 1, 60), traffic)
    await upload.send(90)
    assert traffic.bytes == 90
    await upload.send(90)
    assert upload.outcome is OversizedBodyError
    assert traffic.bytes == 0


class Kept:
    """Stands for the pieces of a body that an application has read."""


@pytest.mark.parametrize("largest", [100, 5_000], ids=["too large", "no room"])
@on_virtual_time
async def test_what_a_rejected_body_left_is_freed_at_once(largest: int) -> None:
    kept: list[weakref.ref[Kept]] = []

    async def application(_: Scope, receive: Receive, __: Send) -> None:
        pieces = Kept()
        kept.append(weakref.ref(pieces))
        while True:
            await receive()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 1_001, "more_body": True}

    app = LimitBodies(application, BodyLimits(largest, 10, 1, 60), Traffic(1, 1_000))
    gc.disable()
    try:
        with suppress(RequestError, OverloadedError):
            await app(SCOPE, receive, ignore)
        assert kept[0]() is None
    finally:
        gc.enable()


@on_virtual_time
async def test_a_form_needs_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    large = bytes(3_000_000)
    head = b'--b\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\n'
    body = head + large + b"\r\n" + head + b"small\r\n--b--\r\n"

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"multipart/form-data; boundary=b")]
    request = Request({"type": "http", "headers": headers}, receive)
    assert await read_files(request, 2) == (large, b"small")
