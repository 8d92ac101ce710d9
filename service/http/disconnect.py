"""Clients that disconnect: work that nobody waits for any more is not begun.

ASGI reports that a client is gone, or that a body is complete, only to an application that
asks, which takes a task or a timer for each request. Our protocol notes both in the scope;
under another server nobody does.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Scope

from service.engine import LeafcodeError

__all__ = ["RequestProgress", "progress_of", "while_connected"]

Result = TypeVar("Result")

_KEY = "leafcode.progress"


class RequestProgress:
    """The state of one request's connection."""

    __slots__ = ("_on_leave", "error", "gone", "received")

    def __init__(self, scope: Scope) -> None:
        self.received = False
        """Whether the last byte of the body is in memory."""
        self.gone = False
        """Whether the client has disconnected."""
        self.error: LeafcodeError | None = None
        """Why the rest of the body cannot be read."""
        self._on_leave: Callable[[], Any] | None = None
        scope[_KEY] = self

    def take_error(self) -> LeafcodeError:
        """The error, which is not kept: raised, it refers to all that was at work."""
        error, self.error = self.error, None
        assert error is not None  # noqa: S101
        return error

    def leave(self) -> None:
        """Note that the client has disconnected, and call what watches for it."""
        self.gone = True
        if self._on_leave is not None:
            self._on_leave()

    def watch(self, on_leave: Callable[[], Any] | None) -> None:
        """Have `on_leave` called when the client disconnects; None calls nothing any more."""
        self._on_leave = on_leave


def progress_of(scope: Scope) -> RequestProgress | None:
    """The progress of a request; None under a server that does not note it."""
    return scope.get(_KEY)


async def while_connected(
    scope: Scope, work: Coroutine[Any, Any, Result], *, queued: bool
) -> Result:
    """The result of `work`, which is cancelled when the client disconnects.

    Only work that is `queued` is worth it: what a worker has begun, it finishes.
    """
    progress = progress_of(scope) if queued else None
    if progress is None:
        return await work
    if progress.gone:
        work.close()
        raise ClientDisconnect
    handler = asyncio.current_task()
    assert handler is not None  # noqa: S101
    progress.watch(handler.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if not progress.gone:
            raise
        raise ClientDisconnect from None
    finally:
        progress.watch(None)
