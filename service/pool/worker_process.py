"""One worker process, from its fork to its end: start, load, work, end.

Slots keep such processes in service; a new version is proved in one that serves nobody.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

from service.pool import frames
from service.pool.fork_client import ForkClient
from service.pool.frames import Fields, Frame, Kind
from service.pool.worker_link import WorkerLink
from service.pool.worker_plan import WorkerPlan

__all__ = ["FrameHandler", "StartWorker", "Worker", "WorkerProcess"]

# Loading hashes the bundle and replays its probes; a worker that takes longer hangs.
_LOAD_TIMEOUT = 60.0
# How long the fork server may take to report the end of a process that was killed.
_END_TIMEOUT = 2.0

FrameHandler = Callable[[Frame], None]
StartWorker = Callable[[WorkerPlan, FrameHandler], "Awaitable[Worker]"]


class Worker(Protocol):
    """A running worker, as a slot sees it."""

    @property
    def pid(self) -> int:
        """Its process id."""

    @property
    def closed(self) -> "asyncio.Future[None]":
        """Done when the connection to it has ended."""

    def keeps_to(self, cores: tuple[int, ...]) -> bool:
        """Whether its process runs on these cores and on no others."""

    def send(self, frame: Frame) -> None:
        """Send a job."""

    async def ping(self, timeout: float) -> None:  # noqa: ASYNC109
        """Return when it has answered; raises `WorkerLostError` if it does not."""

    async def load(self, fields: Fields) -> None:
        """Load a version; raises `WorkerLostError`, or the error that the worker reports."""

    async def unload(self, fields: Fields) -> None:
        """Unload a version; raises what `load` raises."""

    def kill(self) -> None:
        """End it at once, whatever it does."""

    async def end(self) -> int | None:
        """Kill it and wait: its exit code, minus the signal, or None if that is unknown."""


class WorkerProcess:
    """A forked process and the link to it; implements `Worker`."""

    def __init__(self, forks: ForkClient, link: WorkerLink, pid: int) -> None:
        self._forks = forks
        self._link = link
        self.pid = pid
        self.closed = link.closed
        self.send = link.send

    @classmethod
    async def start(
        cls, forks: ForkClient, plan: WorkerPlan, on_frame: FrameHandler
    ) -> "WorkerProcess":
        """A new process that has loaded nothing yet; `on_frame` gets the answers to jobs."""
        link = WorkerLink(on_frame)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
                return cls(forks, link, await forks.fork(plan, theirs))
            except BaseException:
                link.abort()
                raise

    def keeps_to(self, cores: tuple[int, ...]) -> bool:
        """Whether its process runs on these cores and on no others."""
        with contextlib.suppress(OSError, AttributeError):
            return os.sched_getaffinity(self.pid) == set(cores)
        return False

    async def ping(self, timeout: float) -> None:  # noqa: ASYNC109
        """Return when it has answered; raises `WorkerLostError` if it does not."""
        await self._link.call(Kind.PING, {}, timeout)

    async def load(self, fields: Fields) -> None:
        """Load a version; raises `WorkerLostError`, or the error that the worker reports."""
        await self._control(Kind.LOAD, fields)

    async def unload(self, fields: Fields) -> None:
        """Unload a version; raises what `load` raises."""
        await self._control(Kind.UNLOAD, fields)

    async def _control(self, kind: Kind, fields: Fields) -> None:
        frame = await self._link.call(kind, fields, _LOAD_TIMEOUT)
        if frame.kind is not Kind.DONE:
            raise frames.reported_error(frame)

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._forks.kill(self.pid)
        self._link.abort()

    async def end(self) -> int | None:
        """Kill it and wait: its exit code, minus the signal, or None if that is unknown."""
        self.kill()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._forks.ended(self.pid), _END_TIMEOUT)
        return None
