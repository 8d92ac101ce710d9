"""The queue by itself, on a virtual clock: admission, answers, second attempts, the end."""

import asyncio

import pytest

from service.engine import UnsupportedImageError
from service.errors import DeadlineError, NotReadyError, OverloadedError, WorkerLostError
from service.pool.dispatcher import Dispatcher
from service.pool.frames import Frame, Kind, WorkTimes, report_error
from service.pool.job import Outcome, Timings
from service.settings import load_settings
from tests.support.fake_slots import (
    FakeSlot,
    accepting,
    accepting_for,
    idle_slots,
    is_forgotten,
    now,
    outcomes,
    pass_until,
    prefetched,
    submit,
    submit_all,
)
from tests.support.virtual_time import on_virtual_time, settle

# -- Admission -------------------------------------------------------------------------


@on_virtual_time
async def test_a_dispatcher_rejects_before_it_is_told_to_accept() -> None:
    dispatcher = Dispatcher(load_settings(), 1)
    with pytest.raises(NotReadyError, match="starting or stopping"):
        await dispatcher.run(Kind.CLASSIFY, {}, b"", None)
    assert dispatcher.rejections == {"not-ready": 1}


@on_virtual_time
async def test_the_idle_slot_with_the_lowest_number_gets_the_job() -> None:
    dispatcher = accepting_for(3)
    slots = [FakeSlot(number, dispatcher) for number in range(3)]
    for slot in (slots[2], slots[0], slots[1]):
        dispatcher.on_idle(slot)
    await submit(dispatcher, b"a")
    assert [slot.bodies for slot in slots] == [[b"a"], [], []]


@on_virtual_time
async def test_jobs_wait_while_no_slot_is_idle() -> None:
    dispatcher = accepting()
    idle_slots(dispatcher, 1)
    assert not dispatcher.would_wait
    await submit_all(dispatcher, b"a", b"bb", b"ccc")
    assert dispatcher.would_wait
    assert (dispatcher.queue_depth, dispatcher.queue_bytes) == (2, 5)


@on_virtual_time
async def test_jobs_are_done_in_the_order_in_which_they_came() -> None:
    dispatcher = accepting()
    tasks = await submit_all(dispatcher, b"a", b"b", b"c", b"d")
    (slot,) = idle_slots(dispatcher, 1)
    order = []
    while slot.running is not None:
        order.append(bytes(slot.running.body))
        slot.finish()
    assert order == [b"a", b"b", b"c", b"d"]
    assert await outcomes(tasks) == order


@pytest.mark.parametrize(
    ("told", "counted"), [(2, 2), (None, 0), (-1, 0), (True, 0), ("3", 0), (1.5, 0), ([], 0)]
)
@on_virtual_time
async def test_only_a_number_of_unknown_images_is_counted(told: object, counted: int) -> None:
    dispatcher = accepting()
    (slot,) = idle_slots(dispatcher, 1)
    task = await submit(dispatcher, b"a")
    slot.finish(Frame(Kind.DONE, 0, {"unknown": told}, b"", WorkTimes(0.1, {})))
    assert (await task).timings.unknown == counted


@on_virtual_time
async def test_a_slot_that_became_unusable_gets_no_job() -> None:
    dispatcher = accepting_for(2)
    first, second = idle_slots(dispatcher, 2)
    dispatcher.on_unusable(first)
    await submit(dispatcher, b"a")
    assert (first.bodies, second.bodies) == ([], [b"a"])


@on_virtual_time
async def test_a_queue_is_full_by_count() -> None:
    dispatcher = accepting(queue_size=2)
    await submit_all(dispatcher, b"a", b"b")
    with pytest.raises(OverloadedError, match="jobs that wait: 2; try again in 1 s"):
        await dispatcher.run(Kind.CLASSIFY, {}, b"c", None)
    assert dispatcher.queue_depth == 2
    assert dispatcher.rejections == {"queue-full": 1}


@on_virtual_time
async def test_a_queue_is_full_by_bytes() -> None:
    dispatcher = accepting(queue_bytes=1_000_000)
    await submit_all(dispatcher, bytes(600_000), bytes(400_000))
    with pytest.raises(OverloadedError):
        await dispatcher.run(Kind.CLASSIFY, {}, b"c", None)
    assert dispatcher.queue_bytes == 1_000_000


@on_virtual_time
async def test_an_empty_queue_takes_any_one_request() -> None:
    dispatcher = accepting(queue_size=1, queue_bytes=1_000_000)
    request = dispatcher.run_many(Kind.CLASSIFY, {}, [bytes(900_000)] * 3, None)
    task = asyncio.create_task(request)
    await settle()
    assert (dispatcher.queue_depth, dispatcher.queue_bytes) == (3, 2_700_000)
    task.cancel()


@on_virtual_time
async def test_jobs_of_one_request_are_accepted_together_or_not_at_all() -> None:
    dispatcher = accepting(queue_size=3)
    await submit_all(dispatcher, b"a", b"b")
    with pytest.raises(OverloadedError):
        await dispatcher.run_many(Kind.CLASSIFY, {}, [b"c", b"d"], None)
    assert dispatcher.queue_depth == 2


@on_virtual_time
async def test_asking_for_room_takes_none() -> None:
    dispatcher = accepting(queue_size=2)
    await submit(dispatcher, b"a")
    dispatcher.check_room()
    await submit(dispatcher, b"b")
    with pytest.raises(OverloadedError):
        dispatcher.check_room()
    assert dispatcher.queue_depth == 2


# -- When to come back -----------------------------------------------------------------


async def full_queue(n_slots: int, job_takes: float) -> tuple[Dispatcher, list[FakeSlot]]:
    """Slots whose last job took some seconds, all busy, and a full queue of six."""
    dispatcher = accepting_for(n_slots, queue_size=6)
    slots = idle_slots(dispatcher, n_slots)
    for slot in slots:
        slot.prefetches = False
    await submit_all(dispatcher, *[b"a"] * n_slots)
    await pass_until(job_takes)
    for slot in slots:
        slot.finish()
    await submit_all(dispatcher, *[b"b"] * (n_slots + 6))
    return dispatcher, slots


@pytest.mark.parametrize(
    ("n_slots", "job_takes", "seconds"), [(1, 2.0, 12), (2, 2.0, 6), (4, 2.0, 3), (1, 0.125, 1)]
)
@on_virtual_time
async def test_a_rejection_says_how_long_the_queue_needs_at_the_recent_pace(
    n_slots: int, job_takes: float, seconds: int
) -> None:
    dispatcher, _ = await full_queue(n_slots, job_takes)
    with pytest.raises(OverloadedError) as caught:
        dispatcher.check_room()
    assert caught.value.retry_after == seconds
    assert f"try again in {seconds} s" in str(caught.value)


@on_virtual_time
async def test_a_prefetched_job_counts_for_no_worker_when_the_pace_is_told() -> None:
    dispatcher, (slot,) = await full_queue(1, 2.0)
    slot.prefetches = True
    slot.finish()
    assert slot.bodies == [b"b", b"b"]
    await submit_all(dispatcher, b"c", b"c")
    with pytest.raises(OverloadedError) as caught:
        dispatcher.check_room()
    # A job that took no time moved the mean by a twentieth: six times 1.9 seconds.
    assert caught.value.retry_after == 12


# -- Answers ---------------------------------------------------------------------------


@on_virtual_time
async def test_an_answer_says_how_long_its_job_waited_and_worked() -> None:
    dispatcher = accepting()
    task = await submit(dispatcher, b"a")
    await pass_until(3.0)
    (slot,) = idle_slots(dispatcher, 1)
    await pass_until(4.0)
    slot.finish()
    assert (await task).timings == Timings(3.0, 0.5, {"decode": 0.25})


@on_virtual_time
async def test_an_error_of_the_worker_is_raised() -> None:
    dispatcher = accepting()
    (slot,) = idle_slots(dispatcher, 1)
    task = await submit(dispatcher, b"a")
    assert slot.running is not None
    slot.finish(report_error(slot.running.number, UnsupportedImageError("not an image")))
    with pytest.raises(UnsupportedImageError, match="not an image"):
        await task


@on_virtual_time
async def test_jobs_of_one_request_are_spread_and_fail_alone() -> None:
    dispatcher = accepting_for(2)
    slots = idle_slots(dispatcher, 2)
    task = asyncio.create_task(dispatcher.run_many(Kind.CLASSIFY, {}, [b"a", b"b"], None))
    await settle()
    assert [slot.bodies for slot in slots] == [[b"a"], [b"b"]]
    assert slots[1].running is not None
    slots[1].finish(report_error(slots[1].running.number, UnsupportedImageError("not an image")))
    slots[0].finish()
    good, bad = await task
    assert isinstance(good, Outcome)
    assert good.value.body == b"a"
    assert isinstance(bad, UnsupportedImageError)


@on_virtual_time
async def test_an_unexpected_error_fails_the_whole_request() -> None:
    dispatcher = accepting()
    (slot,) = idle_slots(dispatcher, 1)
    task = asyncio.create_task(dispatcher.run_many(Kind.CLASSIFY, {}, [b"a"], None))
    await settle()
    assert slot.running is not None
    slot.finish(report_error(slot.running.number, ZeroDivisionError()))
    with pytest.raises(RuntimeError, match="a worker failed unexpectedly"):
        await task


# -- Second attempts -------------------------------------------------------------------


@on_virtual_time
async def test_a_lost_job_is_tried_again_at_once_by_an_idle_slot() -> None:
    dispatcher = accepting_for(2)
    first, second = idle_slots(dispatcher, 2)
    task = await submit(dispatcher, b"a")
    first.lose()
    assert second.bodies == [b"a"]
    second.finish()
    assert await outcomes([task]) == [b"a"]
    assert not dispatcher.rejections


@on_virtual_time
async def test_a_lost_job_is_tried_again_before_all_that_wait() -> None:
    dispatcher = accepting()
    (slot,) = idle_slots(dispatcher, 1)
    await submit(dispatcher, b"a")
    await submit(dispatcher, b"b")
    slot.lose()
    assert (dispatcher.queue_depth, dispatcher.queue_bytes) == (2, 2)
    dispatcher.on_idle(slot)
    assert slot.bodies[0] == b"a"


@on_virtual_time
async def test_a_job_that_is_lost_twice_is_given_up_alone() -> None:
    dispatcher = accepting()
    (slot,) = idle_slots(dispatcher, 1)
    guilty, innocent = await submit_all(dispatcher, b"a", b"b")
    for _ in range(2):
        slot.lose()
        dispatcher.on_idle(slot)
    with pytest.raises(WorkerLostError, match="the processes of 2 workers ended during this job"):
        await guilty
    slot.finish()
    assert await outcomes([innocent]) == [b"b"]
    assert dispatcher.rejections == {"worker-lost": 1}
    assert is_forgotten(dispatcher)


@on_virtual_time
async def test_a_lost_job_that_nobody_waits_for_is_not_tried_again() -> None:
    dispatcher = accepting_for(2)
    first, second = idle_slots(dispatcher, 2)
    task = await submit(dispatcher, b"a")
    task.cancel()
    await settle()
    first.lose()
    assert second.bodies == []
    assert is_forgotten(dispatcher)


@on_virtual_time
async def test_a_lost_job_past_its_deadline_is_not_tried_again() -> None:
    dispatcher = accepting_for(2)
    first, second = idle_slots(dispatcher, 2)
    task = await submit(dispatcher, b"a", 1.0)
    await pass_until(2.0)
    first.lose()
    assert second.bodies == []
    assert is_forgotten(dispatcher)
    assert isinstance(task.exception(), DeadlineError)


# -- The end ---------------------------------------------------------------------------


@on_virtual_time
async def test_a_dispatcher_without_jobs_is_drained_at_once() -> None:
    dispatcher = accepting()
    dispatcher.drain()
    assert dispatcher.drained.is_set()


@on_virtual_time
async def test_a_draining_dispatcher_finishes_what_it_accepted_and_rejects_the_rest() -> None:
    dispatcher, slot, tasks = await prefetched()
    dispatcher.drain()
    with pytest.raises(NotReadyError):
        await dispatcher.run(Kind.CLASSIFY, {}, b"d", None)
    for _ in range(3):
        assert not dispatcher.drained.is_set()
        slot.finish()
    assert dispatcher.drained.is_set()
    assert await outcomes(tasks) == [b"a", b"b", b"c"]


@on_virtual_time
async def test_a_draining_dispatcher_still_tries_a_lost_job_again() -> None:
    dispatcher, slot, tasks = await prefetched()
    dispatcher.drain()
    slot.lose()
    assert not dispatcher.drained.is_set()
    dispatcher.on_idle(slot)
    for _ in range(3):
        slot.finish()
    assert dispatcher.drained.is_set()
    assert await outcomes(tasks) == [b"a", b"b", b"c"]


@on_virtual_time
async def test_the_deadline_of_the_last_job_ends_the_draining() -> None:
    dispatcher = accepting(deadline_seconds=30)
    idle_slots(dispatcher, 1)
    await submit(dispatcher, b"a")
    dispatcher.drain()
    await dispatcher.drained.wait()
    assert now() == 30.0


@on_virtual_time
async def test_the_second_loss_of_the_last_job_ends_the_draining() -> None:
    dispatcher = accepting()
    (slot,) = idle_slots(dispatcher, 1)
    task = await submit(dispatcher, b"a")
    dispatcher.drain()
    slot.lose()
    dispatcher.on_idle(slot)
    slot.lose()
    assert dispatcher.drained.is_set()
    with pytest.raises(WorkerLostError):
        await task


@pytest.mark.parametrize("n_slots", [0, 1])
@on_virtual_time
async def test_the_client_of_the_last_job_ends_the_draining_by_going_away(n_slots: int) -> None:
    dispatcher = accepting()
    idle_slots(dispatcher, n_slots)
    task = await submit(dispatcher, b"a")
    dispatcher.drain()
    task.cancel()
    await settle()
    assert dispatcher.drained.is_set()


@on_virtual_time
async def test_giving_up_answers_all_that_is_left_and_nothing_happens_afterwards() -> None:
    dispatcher, slot, tasks = await prefetched()
    dispatcher.drain()
    dispatcher.give_up()
    for error in await outcomes(tasks):
        assert isinstance(error, NotReadyError)
        assert str(error) == "the service stopped before this job was done"
    await pass_until(100.0)
    assert slot.killed_at == []
    assert slot.bodies == [b"a", b"b"]
    assert not dispatcher.rejections
