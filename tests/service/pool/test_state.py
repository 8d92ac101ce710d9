"""What the pool tells of itself reads as plain English."""

import os

import pytest

from service.pool.state import PoolState, State, WorkerState


def worker(state: State, reason: str = "", *cores: int, pid: int | None = None) -> WorkerState:
    return WorkerState(1, cores or (3,), pid is not None, pid, state, reason, restarts=2)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (worker("starting"), "worker 1 (core 3) is starting"),
        (worker("loading"), "worker 1 (core 3) is loading its models"),
        (worker("idle"), "worker 1 (core 3) is idle"),
        (worker("busy", "", 0, 2), "worker 1 (cores 0, 2) is busy"),
        (worker("reloading"), "worker 1 (core 3) is loading or unloading a version"),
        (
            worker("silent", "a ping has been unanswered for 1.0 s"),
            "worker 1 (core 3) does not answer: a ping has been unanswered for 1.0 s",
        ),
        (
            worker("waiting", "the last start failed: no memory"),
            "worker 1 (core 3) waits before it is started again: the last start failed: no memory",
        ),
    ],
)
def test_a_worker_is_told_in_a_sentence(state: WorkerState, sentence: str) -> None:
    assert str(state) == sentence


@pytest.mark.parametrize(
    ("cores", "pinned", "pid", "place"),
    [
        ((3,), True, 7, "core 3"),
        ((3,), False, None, "core 3"),  # as soon as it has a process
        ((3, 4), False, 7, "not pinned"),  # the system forbids it
        ((), False, 7, "not pinned"),
        ((), False, None, "not pinned"),
    ],
)
def test_a_worker_is_said_to_be_on_its_cores_only_if_it_is_pinned(
    cores: tuple[int, ...], *, pinned: bool, pid: int | None, place: str
) -> None:
    assert WorkerState(1, cores, pinned, pid, "idle", "", 0).place == place


def test_workers_that_take_jobs_or_will_in_a_moment_are_ready() -> None:
    states: list[State] = ["starting", "loading", "idle", "busy", "reloading", "silent", "waiting"]
    assert [state for state in states if worker(state).ready] == ["idle", "busy", "reloading"]


def test_the_memory_of_a_process_is_told_and_zero_without_one() -> None:
    assert worker("idle", pid=os.getpid()).resident_bytes() > 1_000_000
    assert worker("starting").resident_bytes() == 0


def pool(*workers: WorkerState, accepting: bool = True) -> PoolState:
    return PoolState(accepting, 0, 0, workers, {})


AWAY = ["worker 1 (core 3) does not answer", "worker 1 (core 3) is loading its models"]


def test_a_pool_is_ready_while_one_worker_is_and_strictly_when_all_are() -> None:
    state = pool(worker("idle"), worker("silent"), worker("loading"))
    assert state.obstacles() == []
    assert state.obstacles(strict=True) == AWAY


def test_a_pool_without_a_worker_in_service_names_all_of_them() -> None:
    assert pool(worker("silent"), worker("loading")).obstacles() == AWAY


def test_a_pool_whose_workers_are_ready_is_ready_only_while_it_accepts() -> None:
    assert pool(worker("busy")).obstacles() == []
    assert pool(worker("busy"), accepting=False).obstacles() == [
        "the service is starting or stopping"
    ]


def test_a_pool_counts_busy_workers_and_restarts() -> None:
    state = pool(worker("busy"), worker("idle"), worker("busy"))
    assert (state.busy, state.restarts) == (2, 6)
