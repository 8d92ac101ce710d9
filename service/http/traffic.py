"""What all connections together may hold: how many they are, and bytes that are on their way.

On their way are the bytes of bodies that are not complete, of answers that their clients have
not read, and of requests that were sent ahead of earlier answers. Where there is no room, whatever
is nearest to its own timeout makes some: that has made no progress for the longest time. So a
client that sends a request and reads its answer gets through, however many others do not.
"""

import time
from collections.abc import Iterable
from typing import Any, Protocol

__all__ = ["EVICTED", "MAX_DRAINING", "UNREAD", "ClosableConnection", "Holder", "Traffic"]

EVICTED = "evicted"
"""The reason under which metrics count idle connections that made room for others."""
UNREAD = "unread-answer"
"""The reason under which they count clients that did not read, and were disconnected."""

MAX_DRAINING = 256
"""Connections that end and whose clients may still be sending; more are closed at once."""

# How often to look for idle connections when there were none.
_RESCAN_SECONDS = 0.1


class Holder(Protocol):
    """A body or a connection that holds bytes."""

    deadline: float
    """When its own timeout ends, on the clock of the event loop."""

    def give_up(self) -> None:
        """Let go of the bytes, because there is no room for them."""


class ClosableConnection(Protocol):
    """A connection, which may be between two requests."""

    def idle_since(self) -> float | None:
        """When it began to wait for a request, on the clock of the event loop; None if busy."""

    def evict(self) -> None:
        """Close an idle connection."""


class Traffic:
    """The connections of a service, and the bytes that are on their way."""

    def __init__(self, max_connections: int, max_bytes: int) -> None:
        self.max_connections = max_connections
        self.max_bytes = max_bytes
        self.connections: set[Any] = set()
        """All that are open; uvicorn keeps them here."""
        self.draining = 0
        """Those among them that end, and only discard what still comes; they take no room."""
        self.bytes = 0
        """Bytes on their way now."""
        self._held: dict[Holder, int] = {}
        self._idle: list[tuple[float, ClosableConnection]] = []
        """Found idle at the last look, the longest idle one last."""
        self._next_look = 0.0

    def hold(self, holder: Holder, size: int) -> None:
        """Note that `holder` has `size` bytes now; makes room, maybe at its own cost."""
        self.bytes += size - self._held.get(holder, 0)
        self._held[holder] = size
        while self.bytes > self.max_bytes:
            others = size <= self.max_bytes
            last = min(self._held, key=lambda item: item.deadline) if others else holder
            self.release(last)
            last.give_up()

    def release(self, holder: Holder) -> None:
        """Note that `holder` has no bytes any more."""
        self.bytes -= self._held.pop(holder, 0)

    def full(self) -> bool:
        """Whether there are more connections than allowed."""
        return len(self.connections) - self.draining > self.max_connections

    def may_drain(self) -> bool:
        """Whether another connection may discard what still comes before it is closed."""
        return self.draining < MAX_DRAINING

    def make_room(self, newcomer: ClosableConnection) -> bool:
        """Close the connection that has been idle for the longest time, if there is one."""
        if not self._idle and time.monotonic() >= self._next_look:
            self._idle = _idle_ones(self.connections)
            if len(self._idle) <= 1:  # the newcomer
                self._next_look = time.monotonic() + _RESCAN_SECONDS
        while self._idle:
            since, connection = self._idle.pop()
            if connection is not newcomer and connection.idle_since() == since:
                connection.evict()
                return True
        return False


def _idle_ones(
    connections: Iterable[ClosableConnection],
) -> list[tuple[float, ClosableConnection]]:
    found = [(connection.idle_since(), connection) for connection in connections]
    idle = [(since, connection) for since, connection in found if since is not None]
    return sorted(idle, key=lambda item: item[0], reverse=True)
