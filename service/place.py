"""One place in the pool: a few cores, and the worker process that sits there now.

A task keeps the place occupied: start a worker, load the models, let it work, clean up
when it is gone, start over. Work itself passes through callbacks of the event loop, one
job at a time, without a task or a thread.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from service import wire
from service.errors import WorkerLostError
from service.jobs import Job, State, WorkerState
from service.starter import Starter
from service.wire import Fields, Frame, FrameReader, Kind, WireError
from service.worker import Plan

__all__ = ["Place", "Supervisor"]

logger = logging.getLogger(__name__)

# Loading hashes the bundle and replays its probes; a worker that takes longer hangs.
_LOAD_SECONDS = 60.0
# An idle worker that leaves a ping unanswered gets no work; after so long it is replaced.
_SILENCE_SECONDS = 5.0
# Replacements of workers that die before they have done any good wait longer and longer.
_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 3.0
_GOOD_LIFE_SECONDS = 10.0
_MOST_FAILED_STARTS = 3
# How long the end of a process may take to be told after its socket closed.
_END_SECONDS = 2.0
# A small body travels with its header: one system call, one wake-up of the worker.
_JOINED_BYTES = 131_072

_PING = 0


class Supervisor(Protocol):
    """What a place tells the queue."""

    def on_idle(self, place: "Place") -> None:
        """The worker can take a job."""

    def on_unusable(self, place: "Place") -> None:
        """The worker cannot take a job until `on_idle` says so."""

    def on_answer(self, job: Job, frame: Frame) -> None:
        """A job was answered."""

    def on_lost(self, job: Job) -> None:
        """The worker went away in the middle of a job."""


class Place:
    """Cores, and the life of the workers that are pinned to them."""

    def __init__(
        self,
        plan: Plan,
        starter: Starter,
        supervisor: Supervisor,
        models: Callable[[], Sequence[Fields]],
    ) -> None:
        self._job: Job | None = None
        self.first_start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._plan = plan
        self._starter = starter
        self._supervisor = supervisor
        self._models = models
        self._state = WorkerState(plan.number, plan.cores, None, "starting", "it starts", 0)
        self._link: _Link | None = None
        self._call: tuple[int, asyncio.Future[Frame]] | None = None
        self._calls = _PING
        self._pinged: float | None = None
        self._failures = 0
        self._useful = False
        self._loop = asyncio.get_running_loop()

    @property
    def state(self) -> WorkerState:
        """The worker at this moment."""
        return self._state

    def work_on(self, job: Job) -> None:
        """Send a job to the idle worker."""
        assert self._link is not None  # noqa: S101
        self._job = job
        self._become("busy")
        self._link.send(job.frame())

    def kill(self, reason: str) -> None:
        """End the worker; another one takes the place."""
        if self._state.pid is not None:
            logger.warning("worker %d is killed: %s", self._plan.number, reason)
            self._become("starting", reason)
            self._supervisor.on_unusable(self)
            self._starter.kill(self._state.pid)
            if self._link is not None:
                self._link.abort()

    def check(self) -> None:
        """Ping an idle worker; act on a ping that was not answered."""
        if self._state.state not in ("idle", "silent") or self._link is None:
            return
        if self._pinged is None:
            self._pinged = self._loop.time()
            self._link.send(Frame(Kind.PING, _PING, {}))
            return
        seconds = self._loop.time() - self._pinged
        if seconds >= _SILENCE_SECONDS:
            self.kill(f"it has not answered for {seconds:.0f} s")
        else:
            self._become("silent", f"it has not answered for {seconds:.1f} s")
            self._supervisor.on_unusable(self)

    async def keep_occupied(self) -> None:
        """Start, load, work, clean up, and start over; ends when cancelled."""
        try:
            while True:
                await self._live()
        finally:
            if self._link is not None:
                self._link.abort()

    async def _live(self) -> None:
        """The life of one worker."""
        self._useful, born = False, self._loop.time()
        try:
            await self._start()
            await self._load()
            self._be_ready()
            assert self._link is not None  # noqa: S101
            await self._link.closed
        except Exception as error:  # noqa: BLE001
            # Whatever it was, the place must not stay empty.
            self._on_failed_start(error)
        good = self._useful or self._loop.time() - born > _GOOD_LIFE_SECONDS
        self._failures = 0 if good else self._failures + 1
        await self._clean_up()
        await self._back_off()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            link = _Link(self._on_frame)
            await self._loop.create_unix_connection(lambda: link, sock=ours)
            self._link = link
            pid = await self._starter.fork(self._plan, theirs)
        self._become("loading", "it loads the models", pid)

    async def _load(self) -> None:
        for fields in self._models():
            frame = await self.call(Kind.LOAD, fields, _LOAD_SECONDS)
            if frame.kind is not Kind.DONE:
                raise wire.failure(frame)

    async def call(self, kind: Kind, fields: Fields, seconds: float) -> Frame:
        """Ask a worker that has no job, and wait for its answer."""
        assert self._link is not None  # noqa: S101
        self._calls += 1
        answer: asyncio.Future[Frame] = self._loop.create_future()
        self._call = (self._calls, answer)
        self._link.send(Frame(kind, self._calls, fields))
        either: set[asyncio.Future[Any]] = {answer, self._link.closed}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        self._call = None
        if answer.done():
            return answer.result()
        raise WorkerLostError("it went away" if self._link.closed.done() else "it hangs")

    def _be_ready(self) -> None:
        if not self.first_start.done():
            self.first_start.set_result(None)
        if self._state.restarts:
            logger.info("worker %d (pid %s) is ready again", self._plan.number, self._state.pid)
        self._become("idle")
        self._supervisor.on_idle(self)

    def _on_frame(self, frame: Frame) -> None:
        if self._call is not None and frame.job == self._call[0]:
            self._call[1].set_result(frame)
        elif frame.job == _PING:
            self._on_pong()
        elif self._job is not None and frame.job == self._job.number:
            job, self._job, self._useful = self._job, None, True
            self._become("idle")
            self._supervisor.on_answer(job, frame)
            self._supervisor.on_idle(self)

    def _on_pong(self) -> None:
        self._pinged = None
        if self._state.state == "silent":
            self._become("idle")
            self._supervisor.on_idle(self)

    def _on_failed_start(self, error: Exception) -> None:
        self._become("waiting", f"it could not start: {error}")
        logger.warning("worker %d could not start: %s", self._plan.number, error)
        hopeless = not isinstance(error, WorkerLostError | OSError)
        if not self.first_start.done() and (hopeless or self._failures + 1 >= _MOST_FAILED_STARTS):
            self.first_start.set_exception(error)

    async def _clean_up(self) -> None:
        """Hand the job back, and wait until the process is gone from its cores."""
        self._supervisor.on_unusable(self)
        job, self._job, self._pinged = self._job, None, None
        pid, link, self._link = self._state.pid, self._link, None
        if link is not None:
            link.abort()
        self._become("starting", self._state.reason or "its process ended", None)
        if job is not None:
            self._supervisor.on_lost(job)
        if pid is not None:
            self._starter.kill(pid)
            self._log_end(pid, await self._end_of(pid))
        self._state = replace(self._state, restarts=self._state.restarts + 1)

    async def _end_of(self, pid: int) -> int | None:
        try:
            return await asyncio.wait_for(self._starter.ended(pid), _END_SECONDS)
        except TimeoutError:
            return None

    def _log_end(self, pid: int, code: int | None) -> None:
        how = "somehow" if code is None else f"with code {code}"
        if code is not None and code < 0:
            how = f"by {signal.Signals(-code).name}"
        logger.warning("worker %d (pid %d) ended %s", self._plan.number, pid, how)

    async def _back_off(self) -> None:
        if self._failures > 1:
            delay = min(_FIRST_DELAY_SECONDS * 2 ** (self._failures - 2), _LONGEST_DELAY_SECONDS)
            self._become("waiting", self._state.reason)
            await asyncio.sleep(delay)
        self._become("starting", self._state.reason)

    def _become(self, state: State, reason: str = "", pid: int | None = -1) -> None:
        """Change the state; the process stays the same unless one is given."""
        pid = self._state.pid if pid == -1 else pid
        self._state = replace(self._state, state=state, reason=reason, pid=pid)


class _Link(asyncio.Protocol):
    """Frames over the socket to one worker."""

    def __init__(self, on_frame: Callable[[Frame], None]) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_frame = on_frame
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        # By its interface: uvloop's transports are of no such class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand on the frames that are complete."""
        try:
            frames = self._reader.feed(data)
        except WireError:
            logger.exception("a worker sent no frame")
            self.abort()
            return
        for frame in frames:
            self._on_frame(frame)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The worker is gone, or we hung up."""
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

    def abort(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()
