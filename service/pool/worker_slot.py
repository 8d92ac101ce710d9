"""One place in the pool: a few cores, and the worker process that sits there now.

A task keeps the place occupied: start a worker, load the models, let it work, clean up
when it is gone, start over. Work itself passes through callbacks of the event loop,
without a task or a thread. A worker does one job at a time; one more may be in its hand,
so that it need not wait for the event loop in between. When it has none it can be asked
to load and unload versions; it is then out of reach for jobs, but not for long.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from service.errors import WorkerLostError
from service.pool import frames
from service.pool.fork_client import Starter
from service.pool.frames import Fields, Frame, Kind
from service.pool.job import Job, State, WorkerState
from service.pool.worker import Plan
from service.pool.worker_link import Link, start_worker

__all__ = ["LOAD_SECONDS", "Place", "Stock", "Supervisor"]

logger = logging.getLogger(__name__)

# Loading hashes the bundle and replays its probes; a worker that takes longer hangs.
LOAD_SECONDS = 60.0
# An idle worker that leaves a ping unanswered gets no work; after so long it is replaced.
_SILENCE_SECONDS = 5.0
# Replacements of workers that die before they have done any good wait longer and longer.
_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 3.0
_GOOD_LIFE_SECONDS = 10.0
_MOST_FAILED_STARTS = 3
# How long the end of a process may take to be told after its socket closed.
_END_SECONDS = 2.0

_PING = 0


class Supervisor(Protocol):
    """What a place tells the queue."""

    def on_idle(self, place: "Place") -> None:
        """The worker can take a job."""

    def on_unusable(self, place: "Place") -> None:
        """The worker cannot take a job until `on_idle` says so."""

    def on_answer(self, job: Job, frame: Frame) -> None:
        """A job was answered."""

    def on_next(self, place: "Place", job: Job) -> None:
        """The worker is at the job that was in its hand."""

    def on_lost(self, job: Job) -> None:
        """The worker went away in the middle of a job."""

    def on_returned(self, job: Job) -> None:
        """The worker went away before it came to a job in its hand."""


@dataclass(frozen=True)
class Stock:
    """Which versions workers have, as fields of LOAD frames."""

    wanted: tuple[Fields, ...]
    """All of them are loaded before a worker takes jobs."""
    retiring: tuple[Fields, ...]
    """Requests under way may still need them: kept where they are, loaded nowhere."""


class Place:
    """Cores, and the life of the workers that are pinned to them."""

    def __init__(
        self,
        plan: Plan,
        starter: Starter,
        supervisor: Supervisor,
        stock: Callable[[], Stock],
    ) -> None:
        self._job: Job | None = None
        self._in_hand: Job | None = None
        self.first_start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._plan = plan
        self._starter = starter
        self._supervisor = supervisor
        self._stock = stock
        self._held: list[Fields] = []
        self._state: State = "starting"
        self._reason = "it starts"
        self._pid: int | None = None
        self._restarts = 0
        self._link: Link | None = None
        self._pause: asyncio.Future[None] | None = None
        self._pinged: float | None = None
        self._failures = 0
        self._useful = False
        self._loop = asyncio.get_running_loop()

    @property
    def number(self) -> int:
        """Which of the places it is."""
        return self._plan.number

    @property
    def state(self) -> WorkerState:
        """The worker at this moment."""
        plan = self._plan
        return WorkerState(
            plan.number, plan.cores, self._pid, self._state, self._reason, self._restarts
        )

    def work_on(self, job: Job) -> None:
        """Send a job to the idle worker."""
        assert self._link is not None  # noqa: S101
        self._job = job
        self._become("busy")
        self._link.send(job.frame())

    @property
    def has_free_hand(self) -> bool:
        """Whether the worker is busy and can be given one more job to go on with."""
        return self._job is not None and self._in_hand is None and self._pause is None

    def hand_over(self, job: Job) -> None:
        """Send a job that the busy worker goes on with."""
        assert self._link is not None  # noqa: S101
        self._in_hand = job
        self._link.send(job.frame())

    def forget(self) -> None:
        """Somebody else does the job in the worker's hand; an answer to it means nothing."""
        self._in_hand = None

    def kill(self, reason: str) -> None:
        """End the worker; another one takes the place."""
        if self._pid is not None:
            logger.warning("worker %d is killed: %s", self._plan.number, reason)
            self._become("starting", reason)
            self._supervisor.on_unusable(self)
            self._starter.kill(self._pid)
            if self._link is not None:
                self._link.abort()

    def check(self) -> None:
        """Ping an idle worker; act on a ping that was not answered."""
        if self._state not in ("idle", "silent") or self._link is None:
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
            assert self._link is not None  # noqa: S101
            await self._take_stock(self._link)
            self._be_ready()
            await self._link.closed
        except Exception as error:  # noqa: BLE001
            # Whatever it was, the place must not stay empty.
            self._on_failed_start(error)
        good = self._useful or self._loop.time() - born > _GOOD_LIFE_SECONDS
        self._failures = 0 if good else self._failures + 1
        await self._clean_up()
        await self._back_off()

    async def _start(self) -> None:
        self._held, self._link = [], Link(self._on_frame)
        pid = await start_worker(self._starter, self._plan, self._link)
        self._pid = pid
        self._become("loading", "it loads the models")

    async def catch_up(self) -> None:
        """Bring a worker in service to the present stock, between two jobs.

        A worker that is starting does so by itself. Raises what loading raises, and
        `WorkerLostError` if the worker did not survive it.
        """
        link = self._link
        in_service = self._state in ("idle", "busy", "silent")
        if link is None or not in_service or self._next_step() is None:
            return
        await self._leave_service(link)
        if self._state != "reloading":
            return  # lost while at its last job
        if not await self._answers(link):
            return
        try:
            await self._take_stock(link)
        except WorkerLostError as error:
            self.kill(f"{error} while it loads another version")
            raise
        finally:
            if self._state == "reloading":
                self._rest()

    async def _leave_service(self, link: Link) -> None:
        """No more jobs; returns when the present one is done, or the worker gone."""
        if self._state == "idle":
            self._supervisor.on_unusable(self)
            self._become("reloading")
            return
        self._pause = self._loop.create_future()
        either: set[asyncio.Future[Any]] = {self._pause, link.closed}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pause = None

    async def _answers(self, link: Link) -> bool:
        """Whether it is alive; one that hung before it heard of a version is just replaced."""
        try:
            await link.call(Kind.PING, {}, _SILENCE_SECONDS)
        except WorkerLostError as error:
            self.kill(f"{error}, idle")
            return False
        return True

    async def _take_stock(self, link: Link) -> None:
        """Ask for steps until none is left, even if the stock changes meanwhile."""
        while (step := self._next_step()) is not None:
            kind, fields = step
            frame = await link.call(kind, fields, LOAD_SECONDS)
            if frame.kind is not Kind.DONE:
                raise frames.failure(frame)
            if kind is Kind.LOAD:
                self._held.append(fields)
            else:
                self._held.remove(fields)

    def _next_step(self) -> tuple[Kind, Fields] | None:
        """What the worker has to unload or load; None if it has what it should."""
        stock = self._stock()
        for fields in self._held:
            if fields not in stock.wanted and fields not in stock.retiring:
                return Kind.UNLOAD, fields
        for fields in stock.wanted:
            if fields not in self._held:
                return Kind.LOAD, fields
        return None

    def _be_ready(self) -> None:
        if not self.first_start.done():
            self.first_start.set_result(None)
        if self._restarts:
            logger.info("worker %d (pid %s) is ready again", self._plan.number, self._pid)
        self._rest()

    def _rest(self) -> None:
        """Nothing to do: wait for a job, unless somebody waits for that."""
        if self._pause is not None and not self._pause.done():
            self._become("reloading")
            self._pause.set_result(None)
        else:
            self._become("idle")
            self._supervisor.on_idle(self)

    def _on_frame(self, frame: Frame) -> None:
        if frame.job == _PING:
            self._on_pong()
        elif self._job is not None and frame.job == self._job.number:
            job, self._useful = self._job, True
            self._job, self._in_hand = self._in_hand, None
            if self._job is None:
                self._become("idle")
            self._supervisor.on_answer(job, frame)
            if self._job is None:
                self._rest()
            else:
                self._supervisor.on_next(self, self._job)

    def _on_pong(self) -> None:
        self._pinged = None
        if self._state == "silent":
            self._rest()

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
        in_hand, self._in_hand = self._in_hand, None
        (pid, self._pid), (link, self._link) = (self._pid, None), (self._link, None)
        if link is not None:
            link.abort()
        self._become("starting", self._reason or "its process ended")
        if in_hand is not None:
            self._supervisor.on_returned(in_hand)
        if job is not None:
            self._supervisor.on_lost(job)
        if pid is not None:
            self._starter.kill(pid)
            self._log_end(pid, await self._end_of(pid))
        self._restarts += 1

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
            self._become("waiting", self._reason)
            await asyncio.sleep(delay)
        self._become("starting", self._reason)

    def _become(self, state: State, reason: str = "") -> None:
        """Change the state; the process stays the same."""
        self._state, self._reason = state, reason
