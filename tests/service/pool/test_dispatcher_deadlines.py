"""Jobs that take too long, and jobs that nobody waits for any more."""

import asyncio

import pytest

from service.errors import DeadlineError
from service.pool.frames import Kind
from tests.support.fake_slots import (
    accepting,
    idle_slots,
    is_forgotten,
    now,
    outcomes,
    pass_until,
    submit,
    submit_all,
)
from tests.support.virtual_time import on_virtual_time, settle

# -- Deadlines -------------------------------------------------------------------------


@on_virtual_time
async def test_a_queued_job_is_answered_at_its_deadline_and_leaves_the_queue() -> None:
    dispatcher = accepting(deadline_seconds=30)
    task = await submit(dispatcher, b"a")
    await pass_until(29.999)
    assert not task.done()
    with pytest.raises(DeadlineError, match="no answer after 30 s, the job was still queued"):
        await task
    assert now() == 30.0
    assert is_forgotten(dispatcher)
    assert dispatcher.rejections == {"deadline": 1}


@on_virtual_time
async def test_a_running_job_is_answered_at_its_deadline() -> None:
    dispatcher = accepting(deadline_seconds=30)
    idle_slots(dispatcher, 1)
    task = await submit(dispatcher, b"a", 2.5)
    with pytest.raises(DeadlineError, match=r"no answer after 2\.5 s, the job was running"):
        await task
    assert now() == 2.5


@on_virtual_time
async def test_a_timeout_does_not_extend_the_deadline() -> None:
    dispatcher = accepting(deadline_seconds=30)
    task = await submit(dispatcher, b"a", 1e9)
    with pytest.raises(DeadlineError):
        await task
    assert now() == 30.0


@on_virtual_time
async def test_a_job_that_runs_for_as_long_as_any_may_costs_its_worker() -> None:
    dispatcher = accepting(deadline_seconds=30)
    (slot,) = idle_slots(dispatcher, 1)
    task = await submit(dispatcher, b"a")
    await pass_until(29.999)
    assert slot.killed_at == []
    await pass_until(100.0)
    assert slot.killed_at == [(30.0, "a job ran for 30 s, the longest allowed")]
    assert isinstance(task.exception(), DeadlineError)


@pytest.mark.parametrize(
    ("waits", "timeout", "answered"), [(0.0, 0.5, 0.5), (10.0, None, 30.0), (10.0, 15.0, 15.0)]
)
@on_virtual_time
async def test_a_short_timeout_or_a_long_wait_costs_no_worker_before_its_time(
    waits: float,
    timeout: float | None,  # noqa: ASYNC109
    answered: float,
) -> None:
    dispatcher = accepting(deadline_seconds=30)
    task = await submit(dispatcher, b"a", timeout)
    await pass_until(waits)
    (slot,) = idle_slots(dispatcher, 1)
    await pass_until(answered)
    assert isinstance(task.exception(), DeadlineError)
    await pass_until(waits + 30 - 0.001)
    assert slot.killed_at == []
    await pass_until(waits + 30)
    assert len(slot.killed_at) == 1


@on_virtual_time
async def test_an_answered_job_costs_no_worker() -> None:
    dispatcher = accepting(deadline_seconds=30)
    (slot,) = idle_slots(dispatcher, 1)
    late = await submit(dispatcher, b"a", 1.0)
    await pass_until(29.0)
    slot.finish()
    in_time = await submit(dispatcher, b"b")
    slot.finish()
    await pass_until(100.0)
    assert slot.killed_at == []
    assert isinstance(late.exception(), DeadlineError)
    assert await outcomes([in_time]) == [b"b"]


@on_virtual_time
async def test_a_prefetched_job_is_answered_at_its_deadline_and_its_worker_lives() -> None:
    dispatcher = accepting(deadline_seconds=30)
    await submit(dispatcher, b"a")
    late = await submit(dispatcher, b"b", 1.0)
    (slot,) = idle_slots(dispatcher, 1)
    assert slot.bodies == [b"a", b"b"]
    with pytest.raises(DeadlineError, match="no answer after 1 s, the job was still queued"):
        await late
    assert now() == 1.0
    slot.finish()
    slot.finish()
    await pass_until(100.0)
    assert slot.killed_at == []
    assert is_forgotten(dispatcher)


@on_virtual_time
async def test_a_prefetched_job_counts_its_running_time_from_its_start() -> None:
    dispatcher = accepting(deadline_seconds=30)
    await submit_all(dispatcher, b"a", b"b")
    (slot,) = idle_slots(dispatcher, 1)
    await pass_until(20.0)
    slot.finish()
    await pass_until(49.999)
    assert slot.killed_at == []
    await pass_until(50.0)
    assert len(slot.killed_at) == 1


@on_virtual_time
async def test_a_prefetched_job_that_starts_after_its_deadline_may_run_as_long_as_any() -> None:
    dispatcher = accepting(deadline_seconds=30)
    await submit(dispatcher, b"a")
    await submit(dispatcher, b"b", 1.0)
    (slot,) = idle_slots(dispatcher, 1)
    await pass_until(10.0)
    slot.finish()
    await pass_until(39.999)
    assert slot.killed_at == []
    await pass_until(40.0)
    assert len(slot.killed_at) == 1


@on_virtual_time
async def test_a_second_attempt_counts_its_running_time_from_its_start() -> None:
    dispatcher = accepting(deadline_seconds=30)
    (slot,) = idle_slots(dispatcher, 1)
    await submit(dispatcher, b"a")
    await pass_until(10.0)
    slot.lose()
    dispatcher.on_idle(slot)
    await pass_until(39.999)
    assert slot.killed_at == []
    await pass_until(40.0)
    assert len(slot.killed_at) == 1


# -- Clients that go away --------------------------------------------------------------


@on_virtual_time
async def test_a_queued_job_that_nobody_waits_for_is_dropped() -> None:
    dispatcher = accepting()
    gone, stays = await submit_all(dispatcher, b"a", b"b")
    gone.cancel()
    await settle()
    assert (dispatcher.queue_depth, dispatcher.queue_bytes) == (1, 1)
    (slot,) = idle_slots(dispatcher, 1)
    assert slot.bodies == [b"b"]
    slot.finish()
    assert await outcomes([stays]) == [b"b"]
    assert dispatcher.rejections == {"client-gone": 1}


@on_virtual_time
async def test_a_running_job_that_nobody_waits_for_ends_and_its_worker_goes_on() -> None:
    dispatcher = accepting()
    (slot,) = idle_slots(dispatcher, 1)
    gone, stays = await submit_all(dispatcher, b"a", b"b")
    gone.cancel()
    await settle()
    assert slot.bodies == [b"a"]
    slot.finish()
    slot.finish()
    assert await outcomes([stays]) == [b"b"]
    assert not dispatcher.rejections
    assert is_forgotten(dispatcher)


@on_virtual_time
async def test_all_queued_jobs_of_a_request_that_nobody_waits_for_are_dropped() -> None:
    dispatcher = accepting()
    idle_slots(dispatcher, 1)
    request = dispatcher.run_many(Kind.CLASSIFY, {}, [b"a", b"b", b"c"], None)
    task = asyncio.create_task(request)
    await settle()
    task.cancel()
    await settle()
    assert (dispatcher.queue_depth, dispatcher.queue_bytes) == (0, 0)
    assert dispatcher.rejections == {"client-gone": 2}
