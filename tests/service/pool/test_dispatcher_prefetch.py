"""Jobs that busy workers have prefetched, and jobs that idle ones steal: who, and when exactly."""

import pytest

from service.errors import DeadlineError
from service.pool.dispatcher import MAX_PREFETCH_BYTES, Dispatcher
from service.pool.frames import Frame, Kind
from tests.support.fake_slots import (
    FakeSlot,
    Task,
    accepting,
    accepting_for,
    idle_slots,
    is_forgotten,
    outcomes,
    pass_until,
    prefetched,
    submit,
    submit_all,
)
from tests.support.fake_workers import done
from tests.support.virtual_time import on_virtual_time, settle

# -- Prefetching -----------------------------------------------------------------------


@on_virtual_time
async def test_a_busy_worker_prefetches_while_the_queue_is_as_long_as_there_are_workers() -> None:
    dispatcher = accepting_for(2)
    await submit_all(dispatcher, b"a", b"b", b"c")
    (slot,) = idle_slots(dispatcher, 1)
    assert slot.bodies == [b"a", b"b"]
    assert (dispatcher.queue_depth, dispatcher.queue_bytes) == (1, 1)


@on_virtual_time
async def test_a_shorter_queue_is_left_to_whoever_is_idle_first() -> None:
    dispatcher = accepting_for(2)
    await submit_all(dispatcher, b"a", b"b")
    (slot,) = idle_slots(dispatcher, 1)
    assert slot.bodies == [b"a"]
    assert dispatcher.queue_depth == 1


@pytest.mark.parametrize(("excess", "count"), [(0, 2), (1, 1)])
@on_virtual_time
async def test_only_small_bodies_are_prefetched(excess: int, count: int) -> None:
    dispatcher = accepting()
    await submit_all(dispatcher, b"a", bytes(MAX_PREFETCH_BYTES + excess), b"c")
    (slot,) = idle_slots(dispatcher, 1)
    assert len(slot.bodies) == count


@on_virtual_time
async def test_a_slot_that_cannot_prefetch_is_sent_nothing() -> None:
    dispatcher = accepting()
    await submit_all(dispatcher, b"a", b"b")
    slot = FakeSlot(0, dispatcher)
    slot.prefetches = False
    dispatcher.on_idle(slot)
    assert slot.bodies == [b"a"]


@on_virtual_time
async def test_a_worker_that_begins_with_its_prefetched_job_prefetches_the_next() -> None:
    _, slot, tasks = await prefetched()
    slot.finish()
    assert slot.bodies == [b"b", b"c"]
    slot.finish()
    slot.finish()
    assert await outcomes(tasks) == [b"a", b"b", b"c"]


@on_virtual_time
async def test_a_prefetched_job_waits_until_its_worker_begins_with_it() -> None:
    _, slot, tasks = await prefetched()
    await pass_until(2.0)
    slot.finish()
    await pass_until(3.0)
    slot.finish()
    assert (await tasks[1]).timings.queue == 2.0


@on_virtual_time
async def test_a_prefetched_job_is_not_blamed_for_the_end_of_its_worker() -> None:
    dispatcher, slot, tasks = await prefetched()
    waits = slot.next
    assert waits is not None
    slot.lose()
    assert waits.attempts == 0
    assert [bytes(job.body) for job in dispatcher._queue.values()] == [b"a", b"b", b"c"]
    assert dispatcher.queue_bytes == 3
    dispatcher.on_idle(slot)
    for _ in range(3):
        slot.finish()
    assert await outcomes(tasks) == [b"a", b"b", b"c"]


@on_virtual_time
async def test_a_prefetched_job_that_nobody_waits_for_is_not_put_back() -> None:
    dispatcher, slot, tasks = await prefetched()
    tasks[1].cancel()
    await settle()
    slot.lose()
    assert [bytes(job.body) for job in dispatcher._queue.values()] == [b"a", b"c"]


# -- Stealing --------------------------------------------------------------------------


async def stuck(job_takes: float) -> tuple[Dispatcher, FakeSlot, list[Task]]:
    """A slot that has prefetched `b` at 0 s beside its long job `a`; jobs took some seconds."""
    dispatcher, slot, tasks = await prefetched()
    dispatcher._mean_seconds = job_takes
    tasks[2].cancel()  # the queue is empty: a thief can only steal
    await settle()
    return dispatcher, slot, tasks[:2]


@pytest.mark.parametrize(("job_takes", "steal_time"), [(0.0, 0.05), (0.001, 0.05), (0.25, 1.0)])
@on_virtual_time
async def test_a_prefetched_job_is_stolen_after_four_mean_jobs_and_not_before(
    job_takes: float, steal_time: float
) -> None:
    dispatcher, slot, tasks = await stuck(job_takes)
    thief = FakeSlot(1, dispatcher)
    dispatcher.on_idle(thief)
    await pass_until(steal_time - 0.001)
    assert (slot.bodies, thief.bodies) == ([b"a", b"b"], [])
    await pass_until(steal_time)
    assert (slot.bodies, thief.bodies) == ([b"a", b"b"], [b"b"])
    thief.finish()
    assert await outcomes(tasks[1:]) == [b"b"]
    assert not tasks[0].done()


@on_virtual_time
async def test_a_worker_stays_busy_with_its_copy_of_a_stolen_job_whose_answer_is_ignored() -> None:
    dispatcher, slot, tasks = await stuck(0.25)
    thief = FakeSlot(1, dispatcher)
    dispatcher.on_idle(thief)
    await pass_until(1.0)
    slot.finish()
    assert slot.bodies == [b"b"]
    slot.finish(done(Frame(Kind.CLASSIFY, 0, {}, b"ignored")))
    thief.finish()
    assert await outcomes(tasks) == [b"a", b"b"]
    assert is_forgotten(dispatcher)


@on_virtual_time
async def test_a_copy_of_a_stolen_job_that_never_ends_costs_its_worker() -> None:
    dispatcher, slot, tasks = await stuck(0.25)
    thief = FakeSlot(1, dispatcher)
    dispatcher.on_idle(thief)
    await pass_until(1.0)
    thief.finish()
    await pass_until(2.0)
    slot.finish()
    await pass_until(31.9)
    assert slot.killed_at == []
    await pass_until(40.0)
    assert slot.killed_at == [(32.0, "a job ran for 30 s, the longest allowed")]
    slot.lose()
    assert await outcomes(tasks) == [b"a", b"b"]
    assert is_forgotten(dispatcher)


@on_virtual_time
async def test_a_slot_that_becomes_idle_later_steals_at_once_and_before_it_looks_at_the_queue() -> (
    None
):
    dispatcher, _, _ = await stuck(0.25)
    await pass_until(1.0)
    await submit(dispatcher, b"d")
    thief = FakeSlot(1, dispatcher)
    dispatcher.on_idle(thief)
    assert thief.bodies[0] == b"b"


@on_virtual_time
async def test_a_slot_that_becomes_idle_too_early_takes_from_the_queue() -> None:
    dispatcher, _, _ = await stuck(0.25)
    await pass_until(0.5)
    await submit(dispatcher, b"d")
    thief = FakeSlot(1, dispatcher)
    thief.prefetches = False
    dispatcher.on_idle(thief)
    assert thief.bodies == [b"d"]


@on_virtual_time
async def test_nothing_is_stolen_while_no_slot_is_idle() -> None:
    _, slot, _ = await stuck(0.25)
    await pass_until(20.0)
    assert slot.bodies == [b"a", b"b"]


@on_virtual_time
async def test_the_first_that_was_prefetched_is_stolen_first() -> None:
    dispatcher = accepting_for(1)
    slots = [FakeSlot(number, dispatcher) for number in range(2)]
    for slot in slots:
        await submit_all(dispatcher, b"%d" % slot.number, b"next of %d" % slot.number)
        dispatcher.on_idle(slot)
    await pass_until(1.0)
    thief = FakeSlot(2, dispatcher)
    dispatcher.on_idle(thief)
    assert thief.bodies == [b"next of 0"]


@on_virtual_time
async def test_an_idle_slot_goes_on_looking_for_jobs_to_steal() -> None:
    dispatcher, first, _ = await stuck(0.25)
    thief = FakeSlot(2, dispatcher)
    dispatcher.on_idle(thief)
    await pass_until(1.0)
    thief.finish()
    dispatcher.on_unusable(thief)
    await submit_all(dispatcher, b"d", b"e")
    second = FakeSlot(1, dispatcher)
    dispatcher.on_idle(second)
    assert second.bodies == [b"d", b"e"]
    dispatcher.on_idle(thief)
    await pass_until(5.0)
    assert (first.bodies, second.bodies) == ([b"a", b"b"], [b"d", b"e"])
    assert thief.bodies == [b"e"]


@on_virtual_time
async def test_a_prefetched_job_that_nobody_waits_for_is_not_stolen() -> None:
    dispatcher, slot, tasks = await stuck(0.25)
    tasks[1].cancel()
    thief = FakeSlot(1, dispatcher)
    dispatcher.on_idle(thief)
    await pass_until(10.0)
    assert (slot.bodies, thief.bodies) == ([b"a", b"b"], [])


@on_virtual_time
async def test_a_prefetched_job_past_its_deadline_is_not_stolen() -> None:
    dispatcher = accepting()
    await submit(dispatcher, b"a")
    late = await submit(dispatcher, b"b", 1.0)
    (slot,) = idle_slots(dispatcher, 1)
    await pass_until(1.0)
    assert isinstance(late.exception(), DeadlineError)
    thief = FakeSlot(1, dispatcher)
    dispatcher.on_idle(thief)
    await pass_until(10.0)
    assert (slot.bodies, thief.bodies) == ([b"a", b"b"], [])


@on_virtual_time
async def test_a_stolen_job_may_be_lost_once_more() -> None:
    dispatcher, slot, tasks = await stuck(0.25)
    thief = FakeSlot(1, dispatcher)
    dispatcher.on_idle(thief)
    await pass_until(1.0)
    thief.lose()
    slot.finish()
    slot.finish()  # the copy, and takes up the job itself
    assert slot.bodies == [b"b"]
    slot.finish()
    assert await outcomes(tasks) == [b"a", b"b"]
    assert is_forgotten(dispatcher)
