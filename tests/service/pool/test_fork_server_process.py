"""A fork server that is started ahead, before anybody asks it for workers."""

import json
import os
import signal

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


def test_whoever_starts_a_fork_server_has_its_own_signals_as_before() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with ForkServerProcess(1, None):
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
