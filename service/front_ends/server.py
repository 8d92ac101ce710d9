"""One of several front ends: uvicorn on a socket that it shares, obeying its parent."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from service.app import Workers, create_app
from service.engine import LeafcodeError
from service.front_ends.acceptor import Acceptor, ConnectionCounts
from service.front_ends.lines import Lines
from service.front_ends.link import Link
from service.front_ends.plan import FrontEndPlan
from service.http.listener import turn_away
from service.pool.fork_server_process import ForkServerProcess
from service.server import Server, config_of, with_open_files
from service.siblings import SiblingStatus, versions_of

__all__ = ["serve_share"]

logger = logging.getLogger(__name__)


async def serve_share(
    plan: FrontEndPlan, control: socket.socket, fork_server: ForkServerProcess
) -> None:
    """Serve this front end's share until the parent says otherwise, or is gone."""
    link = Link(await Lines.over(control), plan)
    task = asyncio.current_task()
    assert task is not None  # noqa: S101
    # Until the server takes over: a start may compile for long, and has to clean up.
    link.on_drain = partial(_cancel, task)
    listening = asyncio.create_task(link.listen())
    try:
        await _serve(plan, link, fork_server)
    except LeafcodeError as error:
        link.fail(error)
    except asyncio.CancelledError:
        logger.debug("stopped before it was ready")
    finally:
        listening.cancel()
        await link.close()


async def _serve(plan: FrontEndPlan, link: Link, fork_server: ForkServerProcess) -> None:
    settings = with_open_files(plan.own_settings)
    app = create_app(
        settings, workers=Workers(fork_server, plan.placement(plan.number)), siblings=link
    )
    link.own_page = partial(_page, app)
    config = config_of(settings, app)
    async with app.router.lifespan_context(app):
        link.own_status = lambda: _status(plan, app)
        server = _FrontEnd(config, plan, link, app)
        with socket.socket(fileno=plan.listener) as listener:
            await server.serve([listener])


def _cancel(task: "asyncio.Task[None]", _: str) -> None:
    task.cancel()


def _page(app: FastAPI) -> list[Any]:
    app.state.ended_requests.flush()
    numbers: list[Any] = app.state.metrics.numbers()
    return numbers


def _status(plan: FrontEndPlan, app: FastAPI) -> SiblingStatus:
    context = app.state.context
    return SiblingStatus(
        plan.number,
        context.pool.state(),
        versions_of(context.repository),
        context.repository.rejected,
    )


class _FrontEnd(Server):
    """The server of one front end; signals are for the parent alone."""

    def __init__(
        self, config: uvicorn.Config, plan: FrontEndPlan, link: Link, app: FastAPI
    ) -> None:
        super().__init__(config)
        self._plan, self._link, self._app = plan, link, app
        self._acceptor: Acceptor | None = None
        self.take_parts_of(app)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections once all front ends are ready."""
        await uvicorn.Server.startup(self, [])
        self.settle()
        await self._link.be_ready(self._app.state.context.repository)
        (listener,) = sockets or []
        counts = ConnectionCounts(self._plan.counts, self._plan.count)
        self._acceptor = Acceptor(
            listener, self._connect, self.server_state.connections, counts, self._plan.number
        )
        self._acceptor.start()

    def _connect(self, connection: socket.socket) -> "asyncio.Future[object]":
        loop = asyncio.get_running_loop()
        return asyncio.ensure_future(loop.connect_accepted_socket(self._protocol, connection))

    def _protocol(self) -> asyncio.Protocol:
        """As uvicorn makes one for each connection."""
        make = self.config.http_protocol_class
        return make(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer whoever has connected already; nobody else gets through."""
        if self._acceptor is not None:
            self._acceptor.take_all()
            for listener in sockets or ():
                await turn_away(listener)
            self._acceptor.stop()
        await uvicorn.Server.shutdown(self, sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: the parent says what to do."""
        self._link.on_look, self._link.on_drain = self.look, self._stop
        yield

    def _stop(self, why: str) -> None:
        """Not ready from now on; what was accepted is finished."""
        logger.debug("front end %d stops: %s", self._plan.number, why)
        self.pool.drain()
        self.should_exit = True
