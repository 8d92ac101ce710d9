"""Workers without a process: they answer, hang, crash and fail to start when a test says so.

They behave as the real ones do at the seam `service.pool.worker_process.Worker`: frames are
handled one after the other in the order sent, and nothing comes from a worker that was killed.
"""

import asyncio
import signal
from collections import deque
from typing import Any

from service.engine import BundleError, ImageLimits
from service.errors import WorkerLostError
from service.pool.frames import Fields, Frame, Kind, WorkTimes
from service.pool.worker_plan import WorkerPlan, WorkLimits
from service.pool.worker_process import FrameHandler
from service.pool.worker_slot import Versions

LOAD_TIMEOUT = 60.0
LIMITS = WorkLimits(ImageLimits(), 10, 100)


def plan(number: int = 0, *cores: int) -> WorkerPlan:
    return WorkerPlan(number, cores or (number,), 1, LIMITS)


def done(frame: Frame) -> Frame:
    """The answer of a worker: its body is that of the question, so that a mix-up shows."""
    return Frame(Kind.DONE, frame.job, {}, frame.body, WorkTimes(0.5, {"decode": 0.25}))


class FakeWorker:
    """One worker; jobs are answered by `answer`, all else by itself unless it hangs."""

    def __init__(self, pid: int, on_frame: FrameHandler, load_error: Exception | None) -> None:
        self.pid = pid
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inbox: deque[Frame] = deque()
        self.loaded: list[Fields] = []
        self.load_error = load_error
        self.load_error_of: Fields | None = None
        self.hangs = False
        self.hangs_on_load = False
        self.was_killed = False
        self.is_pinned = True
        self.end_takes = 0.0
        self._on_frame = on_frame
        self._calls: dict[int, asyncio.Future[None]] = {}
        self._exit_code = -signal.SIGKILL

    @property
    def alive(self) -> bool:
        return not self.was_killed and not self.closed.done()

    # -- What tests do ----------------------------------------------------------------------

    def answer(self, frame: Frame | None = None) -> None:
        """Answer the job at the front of the inbox, and do what is behind it."""
        assert self.alive
        assert not self.hangs
        job = self.inbox.popleft()
        self._on_frame(frame or done(job))
        self._work()

    @property
    def can_answer(self) -> bool:
        return self.alive and not self.hangs and bool(self.inbox)

    def crash(self, code: int = -signal.SIGKILL) -> None:
        """Let the process end by itself."""
        self._exit_code = code
        self._close()

    def go_on(self) -> None:
        """Hang no more."""
        self.hangs = False
        self._work()

    def _work(self) -> None:
        """Do all that takes no test to do: pings and loads, up to the next job."""
        while self.alive and not self.hangs and self.inbox and self._is_control(self.inbox[0]):
            frame = self.inbox.popleft()
            if frame.kind is Kind.LOAD and self.hangs_on_load:
                self.hangs = True
                return
            if frame.job in self._calls:
                call = self._calls[frame.job]
                if not call.done():
                    call.set_result(None)
            else:
                # A real pong never comes within the call that sent the ping.
                asyncio.get_running_loop().call_soon(self._pong, frame)

    def _pong(self, frame: Frame) -> None:
        if self.alive:
            self._on_frame(done(frame))

    @staticmethod
    def _is_control(frame: Frame) -> bool:
        return frame.kind in (Kind.PING, Kind.LOAD, Kind.UNLOAD)

    def _close(self) -> None:
        # A real connection is lost in a later turn of the event loop, too.
        asyncio.get_running_loop().call_soon(self._on_closed)

    def _on_closed(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    # -- What slots do ----------------------------------------------------------------------

    def keeps_to(self, cores: tuple[int, ...]) -> bool:
        return bool(cores) and self.is_pinned

    def send(self, frame: Frame) -> None:
        if self.alive:
            self.inbox.append(frame)
            self._work()

    async def ping(self, timeout: float) -> None:  # noqa: ASYNC109
        await self._call(Kind.PING, {}, timeout)

    async def load(self, fields: Fields) -> None:
        await self._call(Kind.LOAD, fields, LOAD_TIMEOUT)
        if self.load_error is not None and self.load_error_of in (None, fields):
            raise self.load_error
        assert fields not in self.loaded
        self.loaded.append(fields)

    async def unload(self, fields: Fields) -> None:
        await self._call(Kind.UNLOAD, fields, LOAD_TIMEOUT)
        self.loaded.remove(fields)

    async def _call(self, kind: Kind, fields: Fields, timeout: float) -> None:  # noqa: ASYNC109
        number = (1 << 63) + len(self._calls)
        self._calls[number] = asyncio.get_running_loop().create_future()
        self.send(Frame(kind, number, fields))
        either: set[asyncio.Future[Any]] = {self._calls[number], self.closed}
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not self._calls[number].done():
            raise WorkerLostError(
                "its process ended" if self.closed.done() else f"no answer within {timeout:g} s"
            )

    def kill(self) -> None:
        self.was_killed = True
        self._close()

    async def end(self) -> int | None:
        self.kill()
        # At least as many turns of the event loop as the report of a real end takes.
        await asyncio.sleep(self.end_takes)
        await self.closed
        return self._exit_code


class FakeWorkers:
    """Starts fake workers; the next starts fail with `start_errors`, loads with `load_errors`.

    Only one version fails to load if `load_error_of` names it.
    """

    def __init__(self) -> None:
        self.started: list[FakeWorker] = []
        self.start_times: list[float] = []
        self.start_errors: deque[Exception] = deque()
        self.load_errors: deque[Exception | None] = deque()
        self.load_error_of: Fields | None = None
        self.start_takes = 0.0
        self.hang_on_load = False

    async def start(self, plan: WorkerPlan, on_frame: FrameHandler) -> FakeWorker:  # noqa: ARG002
        """As `StartWorker`."""
        self.start_times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.start_takes)
        if self.start_errors:
            raise self.start_errors.popleft()
        load_error = self.load_errors.popleft() if self.load_errors else None
        worker = FakeWorker(100 + len(self.started), on_frame, load_error)
        worker.load_error_of = self.load_error_of
        worker.hangs_on_load = self.hang_on_load
        self.started.append(worker)
        return worker

    @property
    def latest(self) -> FakeWorker:
        return self.started[-1]


class FakeVersions:
    """Which versions fake workers have; a load that fails drops the version if `drops` is set."""

    def __init__(self, *wanted: Fields) -> None:
        self.current = Versions(wanted, ())
        self.drops = False

    def versions(self) -> Versions:
        return self.current

    def on_load_failed(self, fields: Fields, error: BundleError) -> None:  # noqa: ARG002
        if self.drops:
            wanted = tuple(item for item in self.current.wanted if item != fields)
            self.current = Versions(wanted, self.current.retiring)
