"""A fork server that is started ahead, before anybody asks it for workers."""

import asyncio
import json
import os
import select
import signal

import uvloop

from service.pool.fork_client import ForkClient
from service.pool.fork_server_process import ForkServerProcess
from tests.support.processes import DEADLINE_SECONDS, is_alive


def test_a_fork_server_that_nobody_asked_is_gone_at_the_end_of_the_block() -> None:
    with ForkServerProcess(1, None) as started:
        assert is_alive(started.process.pid)
    assert started.process.returncode == -signal.SIGKILL
    assert started.control.fileno() == -1


def test_signals_to_the_whole_group_are_for_the_service_alone_from_the_first_moment() -> None:
    with ForkServerProcess(1, None) as started:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(started.process.pid, number)
        started.control.settimeout(DEADLINE_SECONDS)
        assert json.loads(started.control.recv(65_536)) == {"ready": True}


def test_a_fork_server_that_was_ready_before_anybody_listened_is_used() -> None:
    async def use(started: ForkServerProcess) -> None:
        forks = ForkClient(1, None, started)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await forks.start()
        await forks.stop()

    # The service's own event loop: asyncio's runs what was asked for before it reads.
    with (
        ForkServerProcess(1, None) as started,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        assert select.select([started.control], [], [], DEADLINE_SECONDS)[0]
        runner.run(use(started))


def test_whoever_starts_a_fork_server_has_its_own_signals_as_before() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with ForkServerProcess(1, None):
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
