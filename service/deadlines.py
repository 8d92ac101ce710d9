"""How long a request is worth working on: the client's patience, and its presence."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import Header
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import ClientDisconnect, Request

from service.context import Context

__all__ = ["TimeoutMs", "seconds", "while_connected"]

Result = TypeVar("Result")

TimeoutMs = Annotated[
    Annotated[int, Field(ge=1)] | SkipJsonSchema[None],
    Header(
        alias="X-Timeout-Ms",
        description="Answer 504 after so many milliseconds, if the service's own limit is later.",
    ),
]


def seconds(timeout_ms: int | None) -> float | None:
    """The pool's unit."""
    return None if timeout_ms is None else timeout_ms / 1e3


async def while_connected(
    request: Request, context: Context, work: Coroutine[Any, Any, Result]
) -> Result:
    """The result of `work`, which is cancelled when the client goes away before it starts.

    ASGI servers let a handler run on without its client. Watching costs a task, so only
    those who would have to queue are watched.
    """
    if not context.pool.would_wait:
        return await work
    here, gone, waiting = asyncio.current_task(), False, True
    assert here is not None  # noqa: S101

    def leave(watcher: asyncio.Task[None]) -> None:
        nonlocal gone
        if waiting and not watcher.cancelled():
            gone = True
            here.cancel()

    watcher = asyncio.create_task(_disconnected(request))
    watcher.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if not gone:
            raise
        here.uncancel()
        raise ClientDisconnect from None
    finally:
        waiting = False
        watcher.cancel()


async def _disconnected(request: Request) -> None:
    """Returns when the client is gone; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
