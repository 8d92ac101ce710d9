"""The parent of several front ends: starts, watches, reloads and stops them.

It has neither models nor the web framework, and no request passes through it. What one front end
wants to know of the others does.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Container, Coroutine
from typing import Any

from service.front_ends.acceptor import ConnectionCounts, open_counts
from service.front_ends.agreement import Agreement
from service.front_ends.lines import Message
from service.front_ends.plan import front_end_count
from service.front_ends.slot import FrontEndSlot, Shared
from service.hangup import has_terminal
from service.http.listener import bind, url_of
from service.observability.merging import counts_of, merge
from service.pid_file import pid_file
from service.pool.fork_server_process import WORKER
from service.settings import Settings

__all__ = ["reap_one_but", "serve_with_front_ends"]

logger = logging.getLogger(__name__)

_BACKLOG = 2_048
# Beyond the time that a front end has to finish its requests, and then its jobs.
_SPARE_SECONDS = 5.0
_REAP_SECONDS = 1.0


def serve_with_front_ends(settings: Settings, worker: str = WORKER) -> None:
    """Serve until SIGINT or SIGTERM; raises a `LeafcodeError` if that cannot start."""
    count = front_end_count(settings)
    with (
        bind(settings.host, settings.port) as listener,
        pid_file(settings.pid_file),
        open_counts(count) as counts,
    ):
        asyncio.run(_Parent(Shared(settings, listener, counts, worker), count).run())


class _Parent:
    """The front ends of a service, from its start to its end."""

    def __init__(self, shared: Shared, count: int) -> None:
        self._shared = shared
        self._count = count
        self._slots: list[FrontEndSlot] = []
        self._counts = ConnectionCounts(shared.counts.fileno(), count)
        self._agreement = Agreement(lambda number, **message: self._slots[number].send(**message))
        self._pages: dict[int, list[Any]] = {}
        """The metrics of each front end, as they were last told to anybody."""
        self._ended: list[Any] = []
        """The counts of all that have ended, added up."""
        self._accepting = False
        self._stopped_by: asyncio.Future[signal.Signals] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Start, serve until a signal comes, stop."""
        loop = asyncio.get_running_loop()
        self._stopped_by = loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        self._slots = [FrontEndSlot(i, self._shared, self._hear) for i in range(self._count)]
        lives = [asyncio.create_task(slot.supervise()) for slot in self._slots]
        self._begin(self._reap())
        try:
            await self._serve()
        finally:
            self._stop()
            await self._end(lives)

    async def _serve(self) -> None:
        assert self._stopped_by is not None  # noqa: S101
        started = asyncio.gather(*(slot.first_start for slot in self._slots))
        either: set[asyncio.Future[Any]] = {started, self._stopped_by}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            started.cancel()
            logger.info("stopped before it was ready")
            if self._stopped_by.result() is signal.SIGINT:
                raise KeyboardInterrupt
            return
        started.result()
        self._accept()
        await self._stopped_by

    def _accept(self) -> None:
        """Have all front ends accept connections, which may come from now on."""
        loop, listener = asyncio.get_running_loop(), self._shared.listener
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup, has_terminal())
        listener.listen(_BACKLOG)
        self._accepting = True
        for slot in self._slots:
            slot.send(do="accept")
        where = url_of(listener)
        logger.info("ready at %s (pid %d, documentation: /docs)", where, os.getpid())

    # -- Signals -----------------------------------------------------------------------------

    def _on_signal(self, number: signal.Signals) -> None:
        assert self._stopped_by is not None  # noqa: S101
        if not self._stopped_by.done():
            logger.info("stopping on %s", signal.Signals(number).name)
            self._stopped_by.set_result(signal.Signals(number))

    def _on_hangup(self, had_terminal: bool) -> None:  # noqa: FBT001
        """Have all look for new versions and keys; but stop if the terminal hung up."""
        if had_terminal and not has_terminal():
            self._on_signal(signal.SIGHUP)
            return
        for slot in self._slots:
            slot.send(do="look")

    def _stop(self) -> None:
        # Front ends have the same socket; with the last of them the port is free.
        self._shared.listener.close()
        for slot in self._slots:
            slot.stop("the service stops")

    async def _end(self, lives: list["asyncio.Task[None]"]) -> None:
        # Once for requests and once for jobs that nobody waits for any more.
        limit = 2 * self._shared.settings.shutdown_seconds + _SPARE_SECONDS
        _, late = await asyncio.wait(lives, timeout=limit)
        if late:
            for slot in self._slots:
                slot.kill()
            await asyncio.wait(late)
        for slot in self._slots:
            if slot.first_start.done() and not slot.first_start.cancelled():
                slot.first_start.exception()
        logger.info("stopped")

    # -- What front ends say -------------------------------------------------------------------

    def _hear(self, number: int, message: Message) -> None:
        kind = message["do"]
        if kind == "ready":
            self._agreement.join(number, message["serves"], message["rejects"])
            if self._accepting:
                self._slots[number].send(do="accept")
        elif kind == "tell":
            self._agreement.tell(number, message["serves"], message["rejects"])
        elif kind == "loaded":
            self._agreement.loaded(number, message["version"])
        elif kind == "silent":
            self._counts.remove(number)  # the others must not wait for it
        elif kind == "end":
            self._forget(number)
        elif kind == "ask":
            self._begin(self._answer(number, message))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reap(self) -> None:
        """Forget what a lost front end leaves to process 1, which this is in a container."""
        while os.getpid() == 1:
            await asyncio.sleep(_REAP_SECONDS)
            reap_one_but({slot.pid for slot in self._slots})

    def _forget(self, number: int) -> None:
        """A front end has ended; what it counted stays."""
        self._counts.remove(number)
        self._agreement.leave(number)
        self._ended = merge([self._ended, counts_of(self._pages.pop(number, []))])

    async def _answer(self, number: int, message: Message) -> None:
        """Tell one front end what all others tell of themselves."""
        what = message["what"]
        if what == "pages":
            self._pages[number] = message["own"]
        others = [slot for slot in self._slots if slot.number != number]
        told = await asyncio.gather(*(slot.ask(what) for slot in others))
        if what == "pages":
            for slot, page in zip(others, told, strict=True):
                self._keep(slot.number, page)
            pages = [self._pages.get(slot.number, []) for slot in others]
            reply: list[Any] = [self._ended, *pages]
        else:
            reply = [[slot.number, it] for slot, it in zip(others, told, strict=True)]
        self._slots[number].send(do="answer", id=message["id"], told=reply)

    def _keep(self, number: int, page: Any) -> None:
        """Keep a page; of a front end that does not tell, the counts that it told before."""
        if isinstance(page, list):
            self._pages[number] = page
        elif number in self._pages:
            self._pages[number] = counts_of(self._pages[number])


def reap_one_but(own: Container[int | None]) -> None:
    """Forget a child that has ended, unless it is one that somebody else waits for."""
    with contextlib.suppress(ChildProcessError):
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None and ended.si_pid not in own:
            os.waitpid(ended.si_pid, os.WNOHANG)
