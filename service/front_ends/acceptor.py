"""How front ends share the connections that come to one socket.

Whoever is awake first accepts, so that connections which stay open would pile up at one front
end while the workers of another have nothing to do. So each tells the others how many it has, in
memory that all of them map, and one that has clearly more than the least stops accepting until
the others have caught up. Whoever has the least always accepts; while it hangs, the others do after
a moment.
"""

import asyncio
import contextlib
import mmap
import os
import select
import socket
import struct
import tempfile
from collections.abc import Callable, Sized
from typing import IO

__all__ = ["Acceptor", "ConnectionCounts", "open_counts"]

# How many more than the least: some, and an eighth of it.
_SLACK = 2
_SLACK_SHARE = 8
# How soon one that has stopped looks again; .3 % of a core.
_PAUSE_SECONDS = 0.005
# After so many looks at a connection that nobody accepts, it does.
_MAX_LOOKS = 10

_COUNT = struct.Struct("=q")
_ABSENT = -1


def open_counts(count: int) -> IO[bytes]:
    """A file with no name for the numbers of connections of so many front ends."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = os.fdopen(os.memfd_create("leafcode-connections"), "r+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(_COUNT.pack(_ABSENT) * count)
    file.flush()
    return file


class ConnectionCounts:
    """How many connections each front end has, in memory that all of them see."""

    def __init__(self, descriptor: int, count: int) -> None:
        self._memory = mmap.mmap(descriptor, count * _COUNT.size)
        self._count = count

    def set(self, number: int, connections: int) -> None:
        """Tell how many a front end has."""
        _COUNT.pack_into(self._memory, number * _COUNT.size, connections)

    def remove(self, number: int) -> None:
        """Note that a front end takes no connections."""
        self.set(number, _ABSENT)

    def all(self) -> list[int]:
        """The numbers of those that take connections."""
        found = [_COUNT.unpack_from(self._memory, i * _COUNT.size)[0] for i in range(self._count)]
        return [number for number in found if number != _ABSENT]


class Acceptor:
    """Accepts on a shared socket while this front end has no more than its share.

    `connect` makes a connection out of a socket; `connections` are those that are open.
    """

    def __init__(
        self,
        listener: socket.socket,
        connect: Callable[[socket.socket], "asyncio.Future[object]"],
        connections: Sized,
        counts: ConnectionCounts,
        number: int,
    ) -> None:
        self._listener = listener
        self._connect = connect
        self._connections = connections
        self._counts = counts
        self._number = number
        self._being_made: set[asyncio.Future[object]] = set()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._sharing = True
        self._looks = 0
        self._queue = select.poll()
        self._queue.register(listener, select.POLLIN)

    def start(self) -> None:
        """Accept from now on."""
        self._listener.settimeout(0)
        self.tell()
        self._loop.add_reader(self._listener, self._accept)

    def take_all(self) -> None:
        """Accept whatever is left, from now on without a view to the others."""
        self._sharing = False
        self._resume()

    def stop(self) -> None:
        """Accept no more."""
        self._cancel()
        self._loop.remove_reader(self._listener)
        self._counts.remove(self._number)

    def tell(self) -> int:
        """Tell the others how many connections there are."""
        count = len(self._connections) + len(self._being_made)
        self._counts.set(self._number, count)
        return count

    def _accept(self) -> None:
        """One at a time, so that others that are awake get the next."""
        if self._sharing and self._has_enough():
            self._loop.remove_reader(self._listener)
            self._pause()
        else:
            self._take_one()

    def _take_one(self) -> None:
        with contextlib.suppress(OSError):  # taken by another, or gone, or too many open files
            connection, _ = self._listener.accept()
            connection.settimeout(0)
            made = self._connect(connection)
            self._being_made.add(made)
            made.add_done_callback(self._on_made)
            self.tell()

    def _on_made(self, made: "asyncio.Future[object]") -> None:
        self._being_made.discard(made)
        if not made.cancelled():
            made.exception()  # one that broke at once concerns nobody
        self.tell()

    def _has_enough(self) -> bool:
        own, least = self.tell(), min(self._counts.all())
        return own > least + _SLACK + least // _SLACK_SHARE

    def _pause(self) -> None:
        self._timer = self._loop.call_later(_PAUSE_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        if not self._has_enough():
            self._resume()
            return
        self._looks = self._looks + 1 if self._queue.poll(0) else 0
        if self._looks >= _MAX_LOOKS:
            self._looks = 0
            self._take_one()
        self._pause()

    def _resume(self) -> None:
        self._cancel()
        self._looks = 0
        self._loop.add_reader(self._listener, self._accept)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
