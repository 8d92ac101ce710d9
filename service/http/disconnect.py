"""Clients that go away: work that nobody waits for any more is not begun.

ASGI tells an application of it only if it asks, which takes a task for each request. Our
protocol sees the connection end and tells the request's `ClientPresence` directly.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Scope

__all__ = ["ClientPresence", "while_connected"]

Result = TypeVar("Result")

_KEY = "leafcode.client_presence"


class ClientPresence:
    """Whether the client of one request is still connected."""

    __slots__ = ("_on_leave", "gone")

    def __init__(self, scope: Scope) -> None:
        self.gone = False
        self._on_leave: Callable[[], object] | None = None
        scope[_KEY] = self

    def leave(self) -> None:
        """The connection has ended."""
        self.gone = True
        if self._on_leave is not None:
            self._on_leave()

    def watch(self, on_leave: Callable[[], object] | None) -> None:
        """Call `on_leave` when the client goes away; None calls nothing any more."""
        self._on_leave = on_leave


async def while_connected(
    scope: Scope, work: Coroutine[Any, Any, Result], *, queued: bool
) -> Result:
    """The result of `work`, which is cancelled when the client goes away.

    Only work that is `queued` is worth it: what a worker has begun, it finishes. Under
    another server than ours nobody tells, and the work is done in any case.
    """
    presence: ClientPresence | None = scope.get(_KEY)
    handler = asyncio.current_task() if queued else None
    if presence is None or handler is None:
        return await work
    presence.watch(handler.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if not presence.gone:
            raise
        raise ClientDisconnect from None
    finally:
        presence.watch(None)
