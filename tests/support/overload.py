"""One worker and a queue for one, filled, so that whoever comes next is answered 429."""

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx

from tests.support import pictures
from tests.support.clients import web
from tests.support.processes import DEADLINE_SECONDS, Server, until, workers_of

PNG = pictures.png()
IMPATIENT = {"X-Timeout-Ms": "20"}
ONE_WORKER = ("--workers", "1", "--queue-size", "1")


@contextlib.contextmanager
def held(server: Server) -> Iterator[None]:
    """The one worker hangs until the end of the block."""
    (worker,) = workers_of(server)
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def post(server: Server, **headers: str) -> httpx.Response:
    url = f"{server.url}/v1/classify?model=tiny"
    return web.post(url, content=PNG, headers=headers, timeout=DEADLINE_SECONDS)


def fill(server: Server, clients: ThreadPoolExecutor) -> "Future[httpx.Response]":
    """A request that waits in the queue for the hung worker; whoever comes next is refused."""
    # The worker is at this one, though nobody waits for it any more.
    assert "the job was running" in str(post(server, **IMPATIENT).json()["detail"])
    waiting = clients.submit(persist, server)
    until(lambda: post(server, **IMPATIENT).status_code == 429)
    return waiting


def persist(server: Server) -> httpx.Response:
    """Ask until there is room: the question whether the queue is full takes a place in it."""
    while (response := post(server)).status_code == 429:
        pass
    return response
