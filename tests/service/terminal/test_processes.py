"""Work in several processes: order, lost processes, and none left behind."""

import os
import signal
from contextlib import closing

import pytest

from service.terminal.processes import map_in_processes
from tests.support.processes import is_alive

TWO = ((), ())

# What Python 3.12 and newer say about a process with threads, as this one may be.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def told(code: int) -> str:
    return f"ended with {code}"


def end_at(item: int) -> str:
    """Kill this process at two items, and leave it at a third."""
    if item in {7, 30}:
        os.kill(os.getpid(), signal.SIGKILL)
    if item == 31:
        os._exit(3)
    return str(item)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
@pytest.mark.parametrize("placement", [((),), TWO, ((), (), ())])
def test_results_are_in_order(count: int, placement: tuple[tuple[int, ...], ...]) -> None:
    results = list(map_in_processes(str, range(count), placement, told))
    assert results == [str(item) for item in range(count)]


def test_an_item_that_ends_its_process_is_told_and_costs_no_other_item() -> None:
    results = list(map_in_processes(end_at, range(100), TWO, told))
    expected = {7: told(-signal.SIGKILL), 30: told(-signal.SIGKILL), 31: told(3)}
    assert results == [expected.get(item, str(item)) for item in range(100)]


def test_other_processes_do_the_work_and_none_is_left_when_it_is_not_finished() -> None:
    with closing(map_in_processes(lambda _: os.getpid(), range(1000), TWO, int)) as results:
        workers = {next(results) for _ in range(100)}
        assert os.getpid() not in workers
        assert all(map(is_alive, workers))
    assert not any(map(is_alive, workers))


def test_processes_end_when_the_one_that_started_them_is_gone() -> None:
    reading, writing = os.pipe()
    starter = os.fork()
    if starter == 0:  # it ends as if it were killed, with the work unfinished
        os.close(reading)
        for _ in map_in_processes(str, range(1000), TWO, str):
            os._exit(0)
    os.close(writing)
    os.waitpid(starter, 0)
    with os.fdopen(reading) as held_open_by_processes:
        assert held_open_by_processes.read() == ""
