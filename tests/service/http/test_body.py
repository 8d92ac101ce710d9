"""The pace of a body, without a network."""

import asyncio
from collections.abc import Iterable

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.errors import OversizedBodyError, RequestError, SlowBodyError
from service.http.body import BodyLimits, LimitBodies

SCOPE: Scope = {"type": "http", "headers": []}


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
        asyncio.run(LimitBodies(application, limits)(SCOPE, receive, ignore))
    return got, raised.type


def test_a_body_is_read_until_it_stalls() -> None:
    assert read([5, 6, 7], BodyLimits(100, 0.05, 1)) == (18, SlowBodyError)


def test_a_body_is_read_until_it_is_too_large() -> None:
    assert read([60, 40, 1], BodyLimits(100, 60.0, 1)) == (100, OversizedBodyError)


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

        await LimitBodies(application, BodyLimits(10, 0.001, 1))(SCOPE, receive, ignore)
        return kinds

    assert asyncio.run(receive_all()) == ["http.request", "http.disconnect"]
