"""Clients that disconnect: work that nobody waits for any more is not begun."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Scope

from service.http.progress import progress_of

__all__ = ["while_connected"]

Result = TypeVar("Result")


async def while_connected(
    scope: Scope, work: Coroutine[Any, Any, Result], *, queued: bool
) -> Result:
    """The result of `work`, which is cancelled when the client disconnects.

    Only work that is `queued` is worth it: what a worker has begun, it finishes.
    """
    progress = progress_of(scope) if queued else None
    if progress is None:
        return await work
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
