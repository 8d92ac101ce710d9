"""One worker slot: the worker process that it has now, and perhaps the cores it is pinned to.

A task supervises the slot: start a worker, load the models, let it work, clean up when it
is gone, start over. Work itself passes through callbacks of the event loop, without a task
or a thread. A worker does one job at a time and may have prefetched one more, so that it
need not wait for the event loop in between. Between two jobs it can be asked to load and
unload versions.
"""

import asyncio
import logging
import signal
from dataclasses import dataclass
from typing import Any, Protocol

from service.engine import BundleError, UnreadableBundleError
from service.errors import WorkerLostError
from service.pool.frames import Fields, Frame, Kind
from service.pool.job import Job
from service.pool.state import State, WorkerState
from service.pool.worker_plan import WorkerPlan
from service.pool.worker_process import StartWorker, Worker

__all__ = ["SlotEvents", "VersionSource", "Versions", "WorkerSlot"]

logger = logging.getLogger(__name__)

# An idle worker that leaves a ping unanswered gets no work; after so long it is replaced.
_SILENCE_TIMEOUT = 5.0
# Replacements of workers that die before they have answered a job wait longer and longer.
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 3.0
# A worker that lived for longer counts as a good one, even without an answer.
_GOOD_LIFE = 10.0
_MAX_FAILED_STARTS = 3

_PING = 0


class SlotEvents(Protocol):
    """What a slot reports to the dispatcher."""

    def on_idle(self, slot: "WorkerSlot") -> None:
        """The worker can take a job."""

    def on_unusable(self, slot: "WorkerSlot") -> None:
        """The worker cannot take a job until `on_idle` says so."""

    def on_answer(self, job: Job, frame: Frame) -> None:
        """A job was answered."""

    def on_prefetched_started(self, slot: "WorkerSlot", job: Job) -> None:
        """The worker has begun with the job that it had prefetched."""

    def on_lost(self, job: Job) -> None:
        """The worker went away in the middle of a job."""

    def on_prefetched_lost(self, job: Job) -> None:
        """The worker went away before it began with the job that it had prefetched."""


@dataclass(frozen=True)
class Versions:
    """Which versions workers have, as fields of LOAD frames."""

    wanted: tuple[Fields, ...]
    """All of them are loaded before a worker takes jobs."""
    retiring: tuple[Fields, ...]
    """Requests under way may still need them: kept where they are, loaded nowhere."""


class VersionSource(Protocol):
    """Where a slot learns which versions its worker has to have."""

    def versions(self) -> Versions:
        """Which versions workers have at this moment."""

    def on_load_failed(self, fields: Fields, error: BundleError) -> None:
        """A worker that replaces another one could not load a version that it had."""


class WorkerSlot:
    """The lives of the workers that replace each other, on the same cores if they are pinned."""

    def __init__(
        self,
        plan: WorkerPlan,
        start_worker: StartWorker,
        events: SlotEvents,
        versions: VersionSource,
    ) -> None:
        self.first_start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._plan = plan
        self._start_worker = start_worker
        self._events = events
        self._versions = versions
        self._worker: Worker | None = None
        self._job: Job | None = None
        self._prefetched: Job | None = None
        self._loaded: list[Fields] = []
        self._state: State = "starting"
        self._reason = ""
        self._restarts = 0
        self._pause: asyncio.Future[None] | None = None
        self._pinged: float | None = None
        self._failures = 0
        self._has_answered = False
        self._loop = asyncio.get_running_loop()

    @property
    def number(self) -> int:
        """Its number, from zero."""
        return self._plan.number

    @property
    def state(self) -> WorkerState:
        """The current worker at this moment."""
        cores, worker = self._plan.cores, self._worker
        pinned = bool(cores) and worker is not None and worker.keeps_to(cores)
        pid = None if worker is None else worker.pid
        return WorkerState(
            self.number, cores, pinned, pid, self._state, self._reason, self._restarts
        )

    # -- Jobs ------------------------------------------------------------------------------

    def start_job(self, job: Job) -> None:
        """Send a job to the idle worker."""
        assert self._worker is not None  # noqa: S101
        self._job = job
        self._become("busy")
        self._worker.send(job.frame())

    @property
    def can_prefetch(self) -> bool:
        """Whether the worker is busy and may be sent the job that it does next."""
        return self._job is not None and self._prefetched is None and self._pause is None

    def prefetch(self, job: Job) -> None:
        """Send the job that the busy worker does next."""
        assert self._worker is not None  # noqa: S101
        self._prefetched = job
        self._worker.send(job.frame())

    def replace_prefetched(self, copy: Job) -> None:
        """Another worker does the prefetched job; this one has been sent the same as `copy`."""
        self._prefetched = copy

    def kill(self, reason: str) -> None:
        """End the current worker; another one replaces it."""
        if self._worker is not None:
            logger.warning("worker %d is killed: %s", self.number, reason)
            self._become("starting", reason)
            self._events.on_unusable(self)
            self._worker.kill()

    def check(self) -> None:
        """Ping an idle worker; act on a ping that was not answered."""
        if self._state not in ("idle", "silent") or self._worker is None:
            return
        if self._pinged is None:
            self._pinged = self._loop.time()
            self._worker.send(Frame(Kind.PING, _PING, {}))
            return
        silence = self._loop.time() - self._pinged
        if silence >= _SILENCE_TIMEOUT:
            self.kill(f"it has not answered a ping for {silence:.0f} s")
        else:
            self._become("silent", f"a ping has been unanswered for {silence:.1f} s")
            self._events.on_unusable(self)

    def _on_frame(self, frame: Frame) -> None:
        if frame.job == _PING:
            self._on_pong()
        elif self._job is not None and frame.job == self._job.number:
            job, self._has_answered = self._job, True
            self._job, self._prefetched = self._prefetched, None
            if self._job is None:
                self._become("idle")
            self._events.on_answer(job, frame)
            if self._job is None:
                self._rest()
            else:
                self._events.on_prefetched_started(self, self._job)

    def _on_pong(self) -> None:
        self._pinged = None
        if self._state == "silent":
            self._rest()

    def _rest(self) -> None:
        """Take the next job, unless the worker is wanted for loading."""
        if self._pause is not None and not self._pause.done():
            self._become("reloading")
            self._pause.set_result(None)
        else:
            self._become("idle")
            self._events.on_idle(self)

    # -- The life of a worker ----------------------------------------------------------------

    async def supervise(self) -> None:
        """Start, load, work, clean up, and start over; ends when cancelled."""
        try:
            while True:
                await self._live()
        finally:
            if self._worker is not None:
                self._worker.kill()

    async def _live(self) -> None:
        """The life of one worker."""
        self._has_answered, self._loaded, born = False, [], self._loop.time()
        try:
            self._worker = await self._start_worker(self._plan, self._on_frame)
            self._become("loading")
            await self._load_wanted(self._worker)
            self._be_ready()
            await self._worker.closed
        except Exception as error:  # noqa: BLE001
            # Whatever it was, the slot must not stay empty.
            self._on_failed_start(error)
        good = self._has_answered or self._loop.time() - born > _GOOD_LIFE
        self._failures = 0 if good else self._failures + 1
        await self._clean_up()
        await self._back_off()

    def _be_ready(self) -> None:
        assert self._worker is not None  # noqa: S101
        if not self.first_start.done():
            self.first_start.set_result(None)
        if self._restarts:
            logger.info("worker %d (pid %d) is ready again", self.number, self._worker.pid)
        self._rest()

    def _on_failed_start(self, error: Exception) -> None:
        self._become("waiting", f"the last start failed: {error}")
        logger.warning("worker %d could not start: %s", self.number, error)
        hopeless = not isinstance(error, WorkerLostError | OSError)
        if not self.first_start.done() and (hopeless or self._failures + 1 >= _MAX_FAILED_STARTS):
            self.first_start.set_exception(error)

    async def _clean_up(self) -> None:
        """Give the jobs back, and wait until the process is gone."""
        self._events.on_unusable(self)
        worker, self._worker, self._pinged = self._worker, None, None
        job, self._job = self._job, None
        prefetched, self._prefetched = self._prefetched, None
        self._become("starting", self._reason or "its process ended")
        if prefetched is not None:
            self._events.on_prefetched_lost(prefetched)
        if job is not None:
            self._events.on_lost(job)
        if worker is not None:
            self._log_end(worker.pid, await worker.end())
        self._restarts += 1

    def _log_end(self, pid: int, code: int | None) -> None:
        how = "for an unknown reason" if code is None else f"with exit code {code}"
        if code is not None and code < 0:
            how = f"by {signal.Signals(-code).name}"
        logger.warning("worker %d (pid %d) ended %s", self.number, pid, how)

    async def _back_off(self) -> None:
        if self._failures > 1:
            delay = min(_FIRST_DELAY * 2 ** (self._failures - 2), _LONGEST_DELAY)
            self._become("waiting", self._reason)
            await asyncio.sleep(delay)
        self._become("starting", self._reason)

    def _become(self, state: State, reason: str = "") -> None:
        """Change the state; the process stays the same."""
        self._state, self._reason = state, reason

    # -- Versions --------------------------------------------------------------------------

    async def update_versions(self) -> None:
        """Bring a worker in service to the present versions, between two jobs.

        A worker that is starting does so by itself. Raises what loading raises, and
        `WorkerLostError` if the worker did not survive it.
        """
        worker = self._worker
        in_service = self._state in ("idle", "busy", "silent")
        if worker is None or not in_service or self._next_step() is None:
            return
        await self._leave_service(worker)
        if self._state != "reloading":
            return  # lost during its last job
        if not await self._answers(worker):
            return
        try:
            await self._load_wanted(worker)
        except WorkerLostError as error:
            self.kill(f"{error} while it was loading another version")
            raise
        finally:
            if self._state == "reloading":
                self._rest()

    async def _leave_service(self, worker: Worker) -> None:
        """Take no more jobs; returns when the present one is done, or the worker gone."""
        if self._state == "idle":
            self._events.on_unusable(self)
            self._become("reloading")
            return
        self._pause = self._loop.create_future()
        either: set[asyncio.Future[Any]] = {self._pause, worker.closed}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pause = None

    async def _answers(self, worker: Worker) -> bool:
        """Whether it is alive; one that hung before it heard of a version is just replaced."""
        try:
            await worker.ping(_SILENCE_TIMEOUT)
        except WorkerLostError as error:
            self.kill(f"{error}, while it was idle")
            return False
        return True

    async def _load_wanted(self, worker: Worker) -> None:
        """Take steps until none is left, even if the versions change meanwhile."""
        while (step := self._next_step()) is not None:
            kind, fields = step
            if kind is Kind.LOAD:
                try:
                    await worker.load(fields)
                except BundleError as error:
                    if not self._can_do_without(fields, error):
                        raise
                else:
                    self._loaded.append(fields)
            else:
                await worker.unload(fields)
                self._loaded.remove(fields)

    def _can_do_without(self, fields: Fields, error: BundleError) -> bool:
        """Whether a version that could not be loaded is wanted no more, perhaps for that reason.

        Its files were changed in place: the other versions must not be lost with it.
        """
        replaces = self._state == "loading" and self.first_start.done()
        if replaces and not isinstance(error, UnreadableBundleError):
            self._versions.on_load_failed(fields, error)
        return fields not in self._versions.versions().wanted

    def _next_step(self) -> tuple[Kind, Fields] | None:
        """What the worker has to unload or load; None if it has what it should."""
        versions = self._versions.versions()
        for fields in self._loaded:
            if fields not in versions.wanted and fields not in versions.retiring:
                return Kind.UNLOAD, fields
        for fields in versions.wanted:
            if fields not in self._loaded:
                return Kind.LOAD, fields
        return None
