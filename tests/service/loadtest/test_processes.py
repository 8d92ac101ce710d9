"""A service with two front ends as load tests start it: who is who, and what a kill leaves."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.loadtest.processes import ServiceProcess, send_signal
from tests.support.front_ends import TWO
from tests.support.processes import is_alive, until


@pytest.fixture(scope="module")
def service(models: Path) -> Iterator[ServiceProcess]:
    """The last test kills it."""
    with ServiceProcess(models, *TWO) as running:
        yield running


def test_every_process_is_known(service: ServiceProcess) -> None:
    parent, front_ends, workers = service.process.pid, service.front_ends, service.workers
    assert len(front_ends) == len(service.fork_servers) == len(workers) == 2
    everybody = [parent, *front_ends, *service.fork_servers, *workers]
    assert sorted(everybody) == service.processes


def test_a_killed_worker_is_replaced_under_the_same_front_end(service: ServiceProcess) -> None:
    front_ends, (victim, other) = service.front_ends, service.workers
    send_signal([victim], signal.SIGKILL)
    until(lambda: victim not in service.workers)
    service.wait_for_workers()
    assert service.front_ends == front_ends
    assert other in service.workers


def test_nothing_is_left_of_a_service_whose_parent_is_killed(service: ServiceProcess) -> None:
    processes = service.processes
    assert len(processes) == 7
    service.process.kill()
    service.process.wait()
    until(lambda: not any(map(is_alive, processes)))
    assert "Traceback" not in service.log_text
