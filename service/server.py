"""Runs the application in uvicorn, from binding the port to a clean stop.

The application's own start and stop run around the server instead of inside it:
a damaged bundle then ends the start with its own sentence, not with a traceback,
and the pool stops after the last answer.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from service.app import Workers, create_app, entry_of
from service.hangup import has_terminal
from service.http.auth import Keys
from service.http.closing import CloseLimits
from service.http.listener import bind, turn_away, url_of
from service.http.protocol import HeaderLimits, LimitedProtocol
from service.http.traffic import MAX_DRAINING
from service.huge_pages import join_pages
from service.pid_file import pid_file
from service.pool.cores import stay_on
from service.pool.fork_server_process import ForkServerProcess
from service.pool.pool import Pool
from service.reload import Reloader
from service.settings import Settings

__all__ = ["Server", "config_of", "serve", "with_open_files"]

logger = logging.getLogger(__name__)

# Files beside the connections: the workers' pipes, models, the log.
_OTHER_FILES = 500


def serve(settings: Settings, fork_server: ForkServerProcess) -> None:
    """Serve until SIGINT or SIGTERM; raises a `LeafcodeError` if that cannot start."""
    app = create_app(with_open_files(settings), workers=Workers(fork_server))
    config = config_of(settings, app)
    # Before the models load, which takes time: a taken port shows at once.
    with (
        bind(settings.host, settings.port) as listener,
        pid_file(settings.pid_file),
        asyncio.Runner(loop_factory=config.get_loop_factory()) as runner,
    ):
        try:
            runner.run(_serve(app, Server(config), listener))
        except asyncio.CancelledError:
            logger.info("stopped before it was ready")


def config_of(settings: Settings, app: FastAPI) -> uvicorn.Config:
    """How uvicorn runs the application."""
    protocol = partial(
        LimitedProtocol,
        limits=HeaderLimits(settings.max_header_bytes, settings.header_timeout_seconds),
        close_limits=CloseLimits.of(settings),
        traffic=app.state.traffic,
        metrics=app.state.metrics,
    )
    return uvicorn.Config(
        entry_of(app),
        interface="asgi3",  # which it would look for in a coroutine function
        # uvicorn only calls it, which its type does not say.
        http=cast("Any", protocol),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # no answer depends on where a request came from
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )


async def _serve(app: FastAPI, server: "Server", listener: socket.socket) -> None:
    # Until the server takes over: a start may compile for long, and has to clean up.
    task = asyncio.current_task()
    assert task is not None  # noqa: S101
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with app.router.lifespan_context(app):
        server.take_parts_of(app)
        await server.serve([listener])
    logger.info("stopped")


def with_open_files(settings: Settings) -> Settings:
    """Have the system allow a file for every connection; where it does not, fewer connections."""
    wanted = settings.max_connections + MAX_DRAINING + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return settings
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most == wanted:
        return settings
    connections = max(1, most - MAX_DRAINING - _OTHER_FILES)
    logger.warning(
        "at most %d connections, not %d: the system allows %d open files (ulimit -Hn), expected %d",
        connections,
        settings.max_connections,
        hard,
        wanted,
    )
    return settings.model_copy(update={"max_connections": connections})


class Server(uvicorn.Server):
    """uvicorn with signals that end `serve` instead of the process, and a line when ready."""

    pool: Pool
    reloader: Reloader
    keys: Keys | None

    def take_parts_of(self, app: FastAPI) -> None:
        """Signals concern the parts of an application that has started."""
        self.pool, self.reloader = app.state.context.pool, app.state.reloader
        self.keys = app.state.keys
        # So that whoever counts and closes connections sees the same ones as uvicorn.
        self.server_state.connections = app.state.traffic.connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say where."""
        await super().startup(sockets)
        self.settle()
        for listener in sockets or ():
            where = url_of(listener)
            logger.info("ready at %s (pid %d, documentation: /docs)", where, os.getpid())

    def settle(self) -> None:
        """Make the process one that stays."""
        # What is here now stays: looking through it again and again for garbage would keep
        # requests waiting, once in a while.
        gc.freeze()
        gc.enable()
        join_pages()
        stay_on(self.pool.front_end_cores)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer whoever has connected already; nobody else gets through."""
        for listener in sockets or ():
            await turn_away(listener)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own version raises the signal again, before the pool has stopped."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.drain, number)
        # Stays: it must not end a service that is stopping.
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup, has_terminal())
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def drain(self, number: signal.Signals) -> None:
        """Not ready from now on; what was accepted is finished."""
        logger.info("stopping on %s", signal.Signals(number).name)
        self.pool.drain()
        self.handle_exit(number, None)

    def _on_hangup(self, had_terminal: bool) -> None:  # noqa: FBT001
        """Look for new versions and keys; but stop if it was the terminal that hung up."""
        if had_terminal and not has_terminal():
            self.drain(signal.SIGHUP)
        else:
            self.look()

    def look(self) -> None:
        """Look for new versions and keys."""
        self.reloader.ask()
        if self.keys is not None:
            self.keys.reread()
