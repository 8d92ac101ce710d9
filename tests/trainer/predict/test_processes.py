"""Processes behind the interface of an executor: they work, they may end, none is left."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ROOT, is_alive, until
from trainer.errors import DataError
from trainer.predict.processes import LostProcessError, pinned_processes

NOTHING = partial(int)


@dataclass(frozen=True)
class Finished:
    """What needs no finishing."""

    value: Any

    def finish(self) -> Any:
        return self.value


def finished(function: Callable[..., Any], *arguments: Any) -> Finished:
    return Finished(function(*arguments))


@dataclass(frozen=True)
class Waiting:
    """Ends when a file is there, and says in which process."""

    file: Path

    def finish(self) -> int:
        until(self.file.exists)
        return os.getpid()


def fail(sentence: str) -> None:
    raise DataError(sentence)


def note_a_line(path: Path) -> None:
    with path.open("a") as file:
        file.write("prepared\n")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_calls_are_made_elsewhere_each_process_on_its_core() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with pinned_processes(None, NOTHING) as processes:
        assert processes.capacity == 2 * len(cores)
        calls = [processes.submit(finished, os.sched_getaffinity, 0) for _ in range(20)]
        found = {core for call in calls for core in call.result()}
        assert all(len(call.result()) == 1 for call in calls)
        assert found <= set(cores)
        assert processes.submit(finished, os.getpid).result() != os.getpid()


def test_errors_endings_and_work_in_between() -> None:
    with pinned_processes(1, NOTHING) as processes:
        first = processes.submit(finished, os.getpid).result()
        with pytest.raises(DataError, match="not this way") as error:
            processes.submit(finished, fail, "not this way").result()
        assert "in fail" in error.value.__notes__[0]
        with pytest.raises(LostProcessError, match=r"^exit code 3$"):
            processes.submit(finished, os._exit, 3).result()
        second = processes.submit(finished, os.getpid).result()
        assert second != first
        os.kill(second, signal.SIGKILL)
        with pytest.raises(LostProcessError, match=r"^signal 9$"):
            processes.submit(finished, os.getpid).result()
        third = processes.submit(finished, os.getpid).result()
    assert not any(map(is_alive, (first, second, third)))


def test_a_process_that_ends_costs_no_other_call() -> None:
    with pinned_processes(2, NOTHING) as processes:
        lost = processes.submit(finished, os._exit, 3)
        others = [processes.submit(finished, abs, -number) for number in range(20)]
        wait(others)
        assert isinstance(lost.exception(), LostProcessError)
        assert [other.result() for other in others] == list(range(20))


def test_what_processes_begin_with_is_done_once(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with pinned_processes(2, partial(note_a_line, notes)) as processes:
        wait([processes.submit(finished, os.getpid) for _ in range(20)])
        with pytest.raises(LostProcessError):
            processes.submit(finished, os._exit, 3).result()
        processes.submit(finished, os.getpid).result()
    assert notes.read_text() == "prepared\n"


def test_a_process_goes_on_while_a_call_is_being_finished_here(tmp_path: Path) -> None:
    with pinned_processes(1, NOTHING) as processes:
        waiting = processes.submit(Waiting, tmp_path / "file")
        assert processes.submit(finished, abs, -3).result() == 3
        assert not waiting.done()
        (tmp_path / "file").touch()
        assert waiting.result() == os.getpid()


def test_processes_that_lose_the_one_they_were_forked_from_are_replaced() -> None:
    with pinned_processes(1, NOTHING) as processes:
        first = processes.submit(finished, os.getpid).result()
        os.kill(parent_of(first), signal.SIGKILL)
        until(lambda: not is_alive(first))
        with pytest.raises(LostProcessError, match="the process that it was forked from"):
            processes.submit(finished, os.getpid).result()
        second = processes.submit(finished, os.getpid).result()
        assert second != first
    assert not is_alive(second)


def test_processes_that_are_still_preparing_are_not_waited_for() -> None:
    with pinned_processes(2, signal.pause) as processes:
        call = processes.submit(finished, os.getpid)
    assert isinstance(call.exception(), LostProcessError)
    assert multiprocessing.active_children() == []


_STARTER = """
import os, signal
from functools import partial
from tests.trainer.predict.test_processes import finished
from trainer.predict.processes import pinned_processes
if __name__ == "__main__":
    with pinned_processes(2, partial(int)) as processes:
        calls = [processes.submit(finished, os.getpid) for _ in range(20)]
        pids = {call.result() for call in calls}
        processes.submit(finished, signal.pause)
        print(*pids, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_when_the_one_that_started_them_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STARTER], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids
    until(lambda: not any(map(is_alive, pids)))
