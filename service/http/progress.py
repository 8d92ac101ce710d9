"""How far a request has come, as the protocol sees it: its body is here, its client is gone.

ASGI tells an application of either only when it asks, which takes a timer or a task for
each request. Our protocol notes both in the scope; under another server nobody does.
"""

from collections.abc import Callable
from typing import Any

from starlette.types import Scope

__all__ = ["RequestProgress", "progress_of"]

_KEY = "leafcode.progress"


class RequestProgress:
    """The state of one request's connection."""

    __slots__ = ("_on_leave", "gone", "received")

    def __init__(self, scope: Scope) -> None:
        self.received = False
        """Whether the last byte of the body is in memory."""
        self.gone = False
        """Whether the client has disconnected."""
        self._on_leave: Callable[[], Any] | None = None
        scope[_KEY] = self

    def leave(self) -> None:
        """Note that the client has disconnected, and tell whoever watches."""
        self.gone = True
        if self._on_leave is not None:
            self._on_leave()

    def watch(self, on_leave: Callable[[], Any] | None) -> None:
        """Have `on_leave` called when the client disconnects; None calls nothing any more."""
        self._on_leave = on_leave


def progress_of(scope: Scope) -> RequestProgress | None:
    """The progress of a request; None under a server that does not note it."""
    return scope.get(_KEY)
