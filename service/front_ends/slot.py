"""One front end as its parent sees it: started, heard, watched, and started again when it ends."""

import asyncio
import contextlib
import itertools
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from service.errors import SettingsError, WorkerLostError
from service.front_ends.lines import Lines, Message
from service.front_ends.plan import FrontEndPlan
from service.pool.fork_server import SERVICE_SIGNALS
from service.settings import Settings

__all__ = ["FrontEndSlot", "Shared"]

logger = logging.getLogger(__name__)

_PING_SECONDS = 1.0
# An event loop that leaves so many pings unanswered hangs: its clients wait for nothing.
_MAX_UNANSWERED = 10
# How long others may wait for what a front end tells of itself.
_ANSWER_TIMEOUT = 1.0
# How long a process whose lines have ended may take to end.
_END_TIMEOUT = 5.0
# Those that end soon after their start are started again later and later.
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 10.0
_GOOD_LIFE = 10.0


@dataclass(frozen=True)
class Shared:
    """What all front ends are started with."""

    settings: Settings
    listener: socket.socket
    counts: IO[bytes]
    worker: str
    """The module of their workers."""


class FrontEndSlot:
    """The lives of the processes that replace each other.

    `on_message` is told what a process says, with its number; and that it is silent, or has
    ended after it was ready.
    """

    def __init__(self, number: int, shared: Shared, on_message: Callable[..., None]) -> None:
        self.number = number
        self.first_start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ready = False
        self._shared = shared
        self._on_message = on_message
        self._lines: Lines | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        self._questions: dict[int, asyncio.Future[Any]] = {}
        self._unanswered = 0
        self._failures = 0
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """The process, perhaps of one that has just ended."""
        return None if self._process is None else self._process.pid

    def send(self, **message: Any) -> None:
        """Tell the process something, if there is one."""
        if self._lines is not None:
            self._lines.send(**message)

    async def ask(self, what: str) -> Any:
        """What the process tells of itself; "starting" or "silent" if it does not."""
        if not self.ready:
            return "starting"
        number = next(self._numbers)
        self._questions[number] = asyncio.get_running_loop().create_future()
        self.send(do="ask", id=number, what=what)
        try:
            return await asyncio.wait_for(self._questions[number], _ANSWER_TIMEOUT)
        except TimeoutError:
            return "silent"
        finally:
            del self._questions[number]

    # -- The life of a process ---------------------------------------------------------------

    async def supervise(self) -> None:
        """Start a process, listen to it, and start over; ends after `stop`."""
        while not self._stopping:
            loop = asyncio.get_running_loop()
            born, failure = loop.time(), await self._live()
            self._failures = 0 if loop.time() - born > _GOOD_LIFE else self._failures + 1
            if self._stopping:
                return
            if not self.first_start.done():
                self.first_start.set_exception(failure)
                return
            delay = min(_FIRST_DELAY * 2 ** (self._failures - 1), _LONGEST_DELAY)
            logger.error("%s; it is started again", failure)
            await asyncio.sleep(delay if self._failures else 0)

    async def _live(self) -> Exception:
        """The life of one process: why it ended."""
        failure: Exception | None = None
        try:
            self._process, self._lines = await self._start()
        except OSError as error:
            return WorkerLostError(f"front end {self.number} cannot be started: {error}")
        watching = asyncio.create_task(self._watch())
        async for message in self._lines:
            if message["do"] == "fail":
                kind = SettingsError if message["setting"] else WorkerLostError
                failure = kind(message["why"])
            else:
                self._hear(message)
        watching.cancel()
        was_ready, self.ready = self.ready, False
        for question in self._questions.values():
            if not question.done():
                question.set_result("starting")
        code = await self._wait()
        await self._lines.close()
        self._lines = None
        if was_ready:
            self._on_message(self.number, {"do": "end"})
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        ended = f"front end {self.number} (pid {self._process.pid}) ended {how}"
        return failure or WorkerLostError(ended)

    async def _start(self) -> tuple[subprocess.Popen[bytes], Lines]:
        ours, theirs = socket.socketpair()
        shared = self._shared
        with theirs:
            files = (theirs.fileno(), shared.listener.fileno(), shared.counts.fileno())
            plan = FrontEndPlan.of(shared.settings, self.number, files, shared.worker)
            # It inherits that they are blocked, until it can ignore them.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, SERVICE_SIGNALS)
            try:
                process = subprocess.Popen(  # noqa: ASYNC220, S603
                    [
                        *(sys.executable, "-m", "service.front_ends.front_end"),
                        json.dumps(plan.to_json()),
                    ],
                    stdin=subprocess.DEVNULL,
                    pass_fds=plan.files,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return process, await Lines.over(ours)

    def _hear(self, message: Message) -> None:
        kind = message["do"]
        if kind == "pong":
            self._unanswered = 0
        elif kind == "answer":
            question = self._questions.get(message["id"])
            if question is not None and not question.done():
                question.set_result(message["told"])
        else:
            if kind == "ready":
                self._be_ready()
            self._on_message(self.number, message)

    def _be_ready(self) -> None:
        assert self._process is not None  # noqa: S101
        self.ready = True
        logger.info("front end %d (pid %d) is ready", self.number, self._process.pid)
        if not self.first_start.done():
            self.first_start.set_result(None)

    async def _watch(self) -> None:
        """Kill a process that hangs; what it had loaded or begun is lost with it."""
        self._unanswered = 0
        while self._unanswered < _MAX_UNANSWERED:
            await asyncio.sleep(_PING_SECONDS)
            if not self.ready:
                continue
            if self._unanswered:
                self._on_message(self.number, {"do": "silent"})
            self._unanswered += 1
            self.send(do="ping")
        logger.error("front end %d left %d pings unanswered", self.number, self._unanswered)
        self.kill()

    async def _wait(self) -> int:
        assert self._process is not None  # noqa: S101
        try:
            return await asyncio.to_thread(self._process.wait, _END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            return await asyncio.to_thread(self._process.wait)

    # -- The end -----------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Have the process finish what it has accepted, and start no other."""
        self._stopping = True
        self.send(do="drain", why=why)

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
