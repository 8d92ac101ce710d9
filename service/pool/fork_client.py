"""The service's side of the fork server: starts it, asks for workers, hears how they end."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.errors import WorkerLostError
from service.pool.worker import WorkerPlan

__all__ = ["ForkClient"]

logger = logging.getLogger(__name__)

_LINE_BYTES = 65_536


class ForkClient:
    """One fork server at a time; a lost one is replaced when the next worker is needed.

    `log_config` is for `logging.config.dictConfig` in the fork server and its workers.
    """

    def __init__(self, threads: int, log_config: Mapping[str, Any] | None) -> None:
        self._threads = threads
        self._log_config = log_config
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready = False
        self._buffer = b""
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._ends: dict[int, asyncio.Future[int | None]] = {}
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
            line = json.dumps({"start": plan.to_json()}).encode() + b"\n"
            news = await self._ask(line, connection.fileno())
        if "started" not in news:
            raise WorkerLostError(f"the fork server cannot fork: {news.get('failed')}")
        return int(news["started"])

    def kill(self, pid: int) -> None:
        """End a worker at once, whatever it does."""
        if self._control is not None:
            # It kills only children that it has not reaped: a recycled number is never hit.
            with contextlib.suppress(OSError):
                self._control.send(json.dumps({"kill": pid}).encode() + b"\n")
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def ended(self, pid: int) -> int | None:
        """Wait for the end of a worker: its exit code, minus the signal, or None if unknown."""
        try:
            return await self._ends[pid]
        finally:
            del self._ends[pid]

    async def stop(self) -> None:
        """End the fork server and every worker that is left."""
        self._disconnect()
        if self._process is not None:
            if not self._ready:
                self._process.kill()  # it may compile for long, and has no workers yet
            await asyncio.to_thread(self._process.wait)
            self._process = None

    async def _start(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
        self._ready = False
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = [str(theirs.fileno()), json.dumps(self._log_config)]
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603
                [sys.executable, "-m", "service.pool.fork_server", *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=_environment(self._threads),
            )
        ours.settimeout(0)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours, self._on_readable)
        await self._ask()
        self._ready = True

    async def _ask(self, line: bytes = b"", descriptor: int | None = None) -> dict[str, Any]:
        """Send a line, if any, and wait for the next answer."""
        self._answer = asyncio.get_running_loop().create_future()
        if descriptor is not None and self._control is not None:
            socket.send_fds(self._control, [line], [descriptor])
        return await self._answer

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
        if "ended" in news:
            end = self._ends.get(news["ended"])
            if end is not None:
                end.set_result(news["code"])
            return
        if "started" in news:
            self._ends[news["started"]] = asyncio.get_running_loop().create_future()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(news)

    def _on_lost(self) -> None:
        """The fork server died: its workers live on, but how they end is not known any more."""
        logger.error("the fork server ended; another one is started with the next worker")
        self._disconnect()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(WorkerLostError("the fork server ended"))
        for end in self._ends.values():
            if not end.done():
                end.set_result(None)

    def _disconnect(self) -> None:
        control, self._control, self._buffer = self._control, None, b""
        if control is not None:
            asyncio.get_running_loop().remove_reader(control)
            control.close()


def _environment(threads: int) -> dict[str, str]:
    """Ours without keys, with the package in reach and every library kept to its threads."""
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **{name: value for name, value in os.environ.items() if name != "LEAFCODE_API_KEYS"},
        "PYTHONPATH": os.pathsep.join(paths),
        "NUMBA_NUM_THREADS": str(threads),
        # The engine's own threads share the cores; a fork must not find threads of BLAS.
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }
