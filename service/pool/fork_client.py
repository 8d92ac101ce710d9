"""The service's side of the fork server: starts it, asks for workers, hears how they end."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from typing import Any

from service.errors import WorkerLostError
from service.pool.fork_server_process import WORKER, ForkServerProcess
from service.pool.worker_plan import WorkerPlan

__all__ = ["ForkClient"]

logger = logging.getLogger(__name__)

_LINE_BYTES = 65_536
_PING_SECONDS = 1.0
# One that leaves a ping unanswered for longer hangs: nobody could be forked, ended or reaped.
_SILENCE_TIMEOUT = 5.0
# A start may compile all kernels, on a slow machine too.
_START_TIMEOUT = 300.0


class ForkClient:
    """One fork server at a time; one that is lost or hangs is replaced with the next worker.

    `log_config` is for `logging.config.dictConfig` in the fork server and its workers. The
    first one may have been `started` already.
    """

    def __init__(
        self,
        threads: int,
        log_config: Mapping[str, Any] | None,
        started: ForkServerProcess | None = None,
    ) -> None:
        self._threads = threads
        self._log_config = log_config
        self._started = started
        self._worker = started.worker if started is not None else WORKER
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready = False
        self._buffer = b""
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._ends: dict[int, asyncio.Future[int | None]] = {}
        # Workers that the fork server was asked to kill and has not reported the end of.
        self._condemned: set[int] = set()
        # Workers that outlived their fork server, until they are ended: the next one cannot do it.
        self._survivors: set[int] = set()
        # Workers of fork servers that were lost, to be reaped if they are ours.
        self._orphans: set[int] = set()
        self._unanswered_pings = 0
        self._heartbeat: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Ready to fork: kernels loaded, or compiled if there is no cache yet."""
        async with self._turn:
            await self._start()

    async def fork(self, plan: WorkerPlan, connection: socket.socket) -> int:
        """The process id of a new worker at the other end of `connection`'s pair."""
        # One at a time, so that one answer can be on its way.
        async with self._turn:
            if self._control is None:
                await self._start()
            assert self._control is not None  # noqa: S101
            answer = self._next_answer()
            line = json.dumps({"start": plan.to_json()}).encode() + b"\n"
            socket.send_fds(self._control, [line], [connection.fileno()])
            news = await answer
        if "started" not in news:
            raise WorkerLostError(f"the fork server cannot fork: {news.get('failed')}")
        return int(news["started"])

    def kill(self, pid: int) -> None:
        """End a worker at once, whatever it does."""
        if self._control is None or pid in self._survivors:
            _kill(pid)
            return
        # It kills only children that it has not reaped: a recycled number is never hit.
        self._condemned.add(pid)
        self._send({"kill": pid})

    async def ended(self, pid: int) -> int | None:
        """Wait for the end of a worker: its exit code, minus the signal, or None if unknown."""
        try:
            return await self._ends[pid]
        finally:
            del self._ends[pid]
            self._survivors.discard(pid)

    async def stop(self) -> None:
        """End the fork server and every worker that is left."""
        self._disconnect()
        if self._process is None:
            return
        if not self._ready:
            self._process.kill()  # it may compile for long, and has no workers yet
        try:
            await asyncio.to_thread(self._process.wait, _SILENCE_TIMEOUT)
        except subprocess.TimeoutExpired:
            # It hangs. Its workers first, whose numbers are theirs as long as it lives.
            for pid in self._ends:
                _kill(pid)
            await self._end_process()
        self._process = None

    async def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def _start(self) -> None:
        await self._end_process()
        self._ready = False
        started = self._started or ForkServerProcess(self._threads, self._log_config, self._worker)
        self._started = None
        self._process, self._control = started.process, started.control
        self._control.settimeout(0)
        # First: it may be ready already, and is heard as soon as somebody listens.
        ready = self._next_answer()
        asyncio.get_running_loop().add_reader(self._control, self._on_readable)
        try:
            await asyncio.wait_for(ready, _START_TIMEOUT)
        except TimeoutError as error:
            self._disconnect()
            message = f"the fork server was not ready within {_START_TIMEOUT:.0f} s"
            raise WorkerLostError(message) from error
        self._ready = True
        self._beat()

    def _beat(self) -> None:
        """Ping the fork server, again and again; replace one that hangs."""
        # Pings are counted, not timed: after a stall of ours its answer may be still unread.
        if self._unanswered_pings * _PING_SECONDS >= _SILENCE_TIMEOUT:
            logger.error("the fork server has left %d pings unanswered", self._unanswered_pings)
            self._on_lost()
            return
        self._unanswered_pings += 1
        self._send({"ping": True})
        self._orphans -= {pid for pid in self._orphans if _is_not_ours_any_more(pid)}
        self._heartbeat = asyncio.get_running_loop().call_later(_PING_SECONDS, self._beat)

    def _send(self, request: dict[str, object]) -> None:
        """Send a request that has no answer of its own; a hung server's socket may be full."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(json.dumps(request).encode() + b"\n")

    def _next_answer(self) -> "asyncio.Future[dict[str, Any]]":
        """Done with what comes next, other than pongs and ends of workers."""
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def _on_readable(self) -> None:
        assert self._control is not None  # noqa: S101
        try:
            data = self._control.recv(_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_lost()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._on_news(json.loads(line))

    def _on_news(self, news: dict[str, Any]) -> None:
        if "pong" in news:
            self._unanswered_pings = 0
            return
        if "ended" in news:
            self._condemned.discard(news["ended"])
            end = self._ends.get(news["ended"])
            if end is not None and not end.done():
                end.set_result(news["code"])
            return
        if "started" in news:
            self._ends[news["started"]] = asyncio.get_running_loop().create_future()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(news)

    def _on_lost(self) -> None:
        """It died or hangs: its workers live on, but how they end is not known any more."""
        logger.error("the fork server is lost; another one is started with the next worker")
        self._disconnect()
        for pid in self._condemned:
            _kill(pid)
        self._condemned.clear()
        self._survivors.update(self._ends)
        if self._process is not None:
            self._process.kill()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(WorkerLostError("the fork server was lost"))
        self._orphans.update(self._ends)
        for end in self._ends.values():
            if not end.done():
                end.set_result(None)

    def _disconnect(self) -> None:
        control, self._control, self._buffer = self._control, None, b""
        self._unanswered_pings = 0
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if control is not None:
            asyncio.get_running_loop().remove_reader(control)
            control.close()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _is_not_ours_any_more(pid: int) -> bool:
    """Whether a process is no child of ours; one that has ended is forgotten by the system.

    Process 1, which the service is in a container, is given those that lose their parent.
    """
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
