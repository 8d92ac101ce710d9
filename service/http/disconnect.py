"""Clients that go away: work that nobody waits for any more is not begun."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

__all__ = ["while_connected"]

Result = TypeVar("Result")

# Most requests have left the queue by then.
_UNWATCHED_SECONDS = 0.05


async def while_connected(
    request: Request, work: Coroutine[Any, Any, Result], *, queued: bool
) -> Result:
    """The result of `work`, which is cancelled when the client goes away while it is queued.

    ASGI servers let a handler run on without its client. Watching costs a task, so only
    those are watched who are `queued`, and have been for a while.
    """
    if not queued:
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
        """Stop watching, because the handler has its result."""
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
