"""The socket to one worker: frames both ways, and control calls that wait for their answer."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from service.errors import WorkerLostError
from service.pool.frames import Fields, Frame, FrameError, FrameReader, Kind

__all__ = ["WorkerLink"]

logger = logging.getLogger(__name__)

# A small body travels with its header: one system call, one wake-up of the worker.
_JOINED_BYTES = 131_072
# Calls are numbered apart from jobs, so that a late answer is never taken for a job's.
_FIRST_CALL = 1 << 63


class WorkerLink(asyncio.Protocol):
    """Frames over the socket to one worker; `on_frame` gets those that answer no call."""

    def __init__(self, on_frame: Callable[[Frame], None]) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_frame = on_frame
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._calls = _FIRST_CALL
        self._answers: dict[int, asyncio.Future[Frame]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        # By its interface: uvloop's transports are of no such class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass on the frames that are complete."""
        try:
            frames = self._reader.feed(data)
        except FrameError:
            logger.exception("a worker sent bytes that are not a frame; it is disconnected")
            self.abort()
            return
        for frame in frames:
            answer = self._answers.get(frame.job)
            if answer is None:
                self._on_frame(frame)
            else:
                answer.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Tell whoever waits that the connection has ended, on either side."""
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, frame: Frame) -> None:
        """Write a frame; what the socket does not take at once follows by itself."""
        assert self._transport is not None  # noqa: S101
        if len(frame.body) <= _JOINED_BYTES:
            self._transport.write(frame.head() + frame.body)
        else:
            self._transport.write(frame.head())
            self._transport.write(frame.body)

    async def call(self, kind: Kind, fields: Fields, timeout: float) -> Frame:  # noqa: ASYNC109
        """The answer of a worker that has no job; raises `WorkerLostError` without one."""
        number, self._calls = self._calls, self._calls + 1
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self.send(Frame(kind, number, fields))
            either: set[asyncio.Future[Any]] = {answer, self.closed}
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._answers[number]
        if answer.done():
            return answer.result()
        raise WorkerLostError(
            "its process ended" if self.closed.done() else f"no answer within {timeout:g} s"
        )

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
