"""How long a request is worth working on: the client's patience, and its presence."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import Header
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import ClientDisconnect, Request

from service.routes.context import Context

__all__ = ["TimeoutMs", "seconds", "while_connected"]

Result = TypeVar("Result")

TimeoutMs = Annotated[
    Annotated[int, Field(ge=1)] | SkipJsonSchema[None],
    Header(
        alias="X-Timeout-Ms",
        description="Answer 504 after so many milliseconds, if the service's own limit is later.",
    ),
]


# Most requests have left the queue by then.
_UNWATCHED_SECONDS = 0.05


def seconds(timeout_ms: int | None) -> float | None:
    """The pool's unit."""
    return None if timeout_ms is None else timeout_ms / 1e3


async def while_connected(
    request: Request, context: Context, work: Coroutine[Any, Any, Result]
) -> Result:
    """The result of `work`, which is cancelled when the client goes away before it starts.

    ASGI servers let a handler run on without its client. Watching costs a task, so only
    those are watched who have been queued for a while.
    """
    if not context.pool.would_wait:
        return await work
    watch = _Watch(request)
    try:
        return await work
    except asyncio.CancelledError:
        if not watch.client_gone:
            raise
        raise ClientDisconnect from None
    finally:
        watch.end()


class _Watch:
    """Cancels the task that made it when the client of `request` goes away."""

    def __init__(self, request: Request) -> None:
        self.client_gone = False
        self._request = request
        self._handler = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_UNWATCHED_SECONDS, self._begin)

    def end(self) -> None:
        """Whoever waited has an answer."""
        self._handler = None
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _begin(self) -> None:
        self._watcher = asyncio.create_task(_disconnected(self._request))
        self._watcher.add_done_callback(self._on_end)

    def _on_end(self, watcher: asyncio.Task[None]) -> None:
        if self._handler is not None and not watcher.cancelled():
            self.client_gone = self._handler.cancel()


async def _disconnected(request: Request) -> None:
    """Returns when the client is gone; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
