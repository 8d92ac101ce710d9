"""One worker slot with fake workers on a virtual clock: starts, jobs, pings, back-off, the end."""

import asyncio
import logging
import signal

import pytest

from service.engine import BundleError
from service.errors import WorkerLostError
from service.pool.frames import Frame, Kind
from service.pool.worker_slot import Versions
from tests.support.fake_slots import pass_until
from tests.support.fake_workers import done
from tests.support.supervised_slots import ONE, TWO, Supervised, job, supervised
from tests.support.virtual_time import on_virtual_time, settle

# -- Starts -------------------------------------------------------------------------------


@on_virtual_time
async def test_a_slot_starts_a_worker_that_loads_its_versions_before_it_takes_jobs() -> None:
    slot = Supervised()
    assert slot.sentence == "worker 3 (core 5) is starting"
    slot.source.current = Versions((ONE, TWO), ())
    task = asyncio.create_task(slot.slot.supervise())
    await slot.slot.first_start
    assert slot.worker.loaded == [ONE, TWO]
    assert slot.slot.state.pid == slot.worker.pid
    assert slot.sentence == "worker 3 (core 5) is idle"
    task.cancel()


@on_virtual_time
async def test_a_worker_that_is_still_loading_says_so() -> None:
    slot = Supervised()
    slot.workers.hang_on_load = True
    task = asyncio.create_task(slot.slot.supervise())
    await settle()
    assert slot.sentence == "worker 3 (core 5) is loading its models"
    assert not slot.slot.state.ready
    assert not slot.slot.first_start.done()
    task.cancel()


@on_virtual_time
async def test_a_worker_loads_what_is_wanted_when_it_starts_and_nothing_that_retires() -> None:
    async with supervised() as slot:
        slot.source.current = Versions((TWO,), (ONE,))
        slot.worker.crash()
        await settle()
        assert slot.worker.loaded == [TWO]


@pytest.mark.parametrize("error", [WorkerLostError("it is gone"), OSError("too many processes")])
@on_virtual_time
async def test_a_first_start_is_tried_three_times(error: Exception) -> None:
    async with supervised(error, error, error) as slot:
        await pass_until(0.05)
        assert not slot.slot.first_start.done()
        await pass_until(0.1)
        assert slot.slot.first_start.exception() is error
        assert slot.workers.start_times == [0.0, 0.0, 0.1]


@on_virtual_time
async def test_a_first_start_with_a_hopeless_error_is_not_tried_again_before_it_is_told() -> None:
    slot = Supervised()
    error = BundleError("a file is missing")
    slot.workers.load_errors.append(error)
    task = asyncio.create_task(slot.slot.supervise())
    await asyncio.wait([slot.slot.first_start])
    assert slot.slot.first_start.exception() is error
    assert len(slot.workers.started) == 1
    task.cancel()


@on_virtual_time
async def test_a_slot_whose_first_start_failed_goes_on_trying() -> None:
    async with supervised(*[WorkerLostError("it is gone")] * 4) as slot:
        await pass_until(10.0)
        assert slot.new_reports()[-1] == "idle"
        assert isinstance(slot.slot.first_start.exception(), WorkerLostError)


@on_virtual_time
async def test_starts_that_fail_again_and_again_wait_longer_and_longer_up_to_a_limit() -> None:
    async with supervised(*[OSError("no memory")] * 9) as slot:
        await pass_until(60.0)
        times = slot.workers.start_times
        assert times == pytest.approx([0, 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.1, 9.1, 12.1], abs=1e-6)


@on_virtual_time
async def test_workers_that_die_before_they_answer_wait_longer_and_longer_too() -> None:
    async with supervised() as slot:
        for _ in range(4):
            slot.worker.crash()
            await asyncio.sleep(1.0)
        assert slot.workers.start_times == pytest.approx([0.0, 0.0, 1.1, 2.2, 3.4], abs=1e-6)


@on_virtual_time
async def test_a_worker_that_has_answered_is_replaced_at_once() -> None:
    async with supervised() as slot:
        for number in range(1, 5):
            slot.slot.start_job(job(number))
            slot.worker.answer()
            slot.worker.crash()
            await settle()
        assert slot.workers.start_times == [0.0] * 5


@pytest.mark.parametrize(("life", "delay"), [(10.5, 0.0), (9.5, 0.1)])
@on_virtual_time
async def test_a_worker_that_lived_for_ten_seconds_is_replaced_at_once(
    life: float, delay: float
) -> None:
    async with supervised(OSError("once")) as slot:
        await pass_until(life)
        slot.worker.crash()
        await pass_until(20.0)
        assert slot.workers.start_times == [0.0, 0.0, life + delay]


@on_virtual_time
async def test_the_next_worker_starts_when_the_process_of_the_last_one_is_gone() -> None:
    async with supervised() as slot:
        slot.worker.end_takes = 1.5
        slot.worker.crash()
        await pass_until(1.0)
        assert slot.workers.start_times == [0.0]
        assert slot.slot.state.pid is None
        await pass_until(2.0)
        assert slot.workers.start_times == [0.0, 1.5]


@on_virtual_time
async def test_a_slot_that_is_supervised_no_more_kills_its_worker() -> None:
    async with supervised() as slot:
        assert not slot.worker.was_killed
    assert slot.worker.was_killed


# -- Sentences ----------------------------------------------------------------------------


@on_virtual_time
async def test_a_failed_start_is_the_reason_until_the_worker_is_there() -> None:
    async with supervised(OSError("no memory"), OSError("still no memory")) as slot:
        assert slot.sentence == (
            "worker 3 (core 5) waits before it is started again: "
            "the last start failed: still no memory"
        )
        slot.workers.start_takes = 1.0
        await pass_until(0.5)
        assert slot.sentence == (
            "worker 3 (core 5) is starting: the last start failed: still no memory"
        )
        await pass_until(2.0)
        assert slot.sentence == "worker 3 (core 5) is idle"
        assert slot.slot.state.restarts == 2


@on_virtual_time
async def test_a_worker_that_ended_by_itself_is_the_reason_of_the_next_start() -> None:
    async with supervised() as slot:
        slot.worker.end_takes = 1.0
        slot.worker.crash()
        await settle()
        assert slot.sentence == "worker 3 (core 5) is starting: its process ended"
        assert not slot.slot.state.ready


@on_virtual_time
async def test_a_killed_worker_is_replaced_and_the_reason_is_told() -> None:
    async with supervised() as slot:
        first = slot.worker
        first.end_takes = 1.0
        slot.slot.start_job(job(1))
        slot.slot.kill("a job ran for 30 s, the longest allowed")
        assert slot.reports == ["unusable"]
        await settle()
        assert first.was_killed
        assert "lost 1" in slot.reports
        assert slot.sentence == (
            "worker 3 (core 5) is starting: a job ran for 30 s, the longest allowed"
        )
        await pass_until(2.0)
        assert slot.slot.state.pid != first.pid
        assert slot.slot.state.restarts == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [(-signal.SIGSEGV, "ended by SIGSEGV"), (1, "ended with exit code 1")],
)
@on_virtual_time
async def test_the_log_says_how_a_worker_ended(
    caplog: pytest.LogCaptureFixture, code: int, words: str
) -> None:
    async with supervised() as slot:
        with caplog.at_level(logging.INFO):
            slot.worker.crash(code)
            await settle()
        assert f"worker 3 (pid 100) {words}" in caplog.text
        assert "worker 3 (pid 101) is ready again" in caplog.text


# -- Jobs ---------------------------------------------------------------------------------


@on_virtual_time
async def test_a_job_makes_a_worker_busy_until_it_answers() -> None:
    async with supervised() as slot:
        slot.slot.start_job(job(1))
        assert slot.sentence == "worker 3 (core 5) is busy"
        assert slot.new_reports() == []
        slot.worker.answer()
        assert slot.new_reports() == ["answer to 1: body 1", "idle"]


@on_virtual_time
async def test_a_prefetched_job_starts_when_the_one_before_is_answered() -> None:
    async with supervised() as slot:
        assert not slot.slot.can_prefetch
        slot.slot.start_job(job(1))
        assert slot.slot.can_prefetch
        slot.slot.prefetch(job(2))
        assert not slot.slot.can_prefetch
        slot.worker.answer()
        assert slot.new_reports() == ["answer to 1: body 1", "started 2"]
        assert slot.slot.state.state == "busy"
        slot.worker.answer()
        assert slot.new_reports() == ["answer to 2: body 2", "idle"]


@on_virtual_time
async def test_a_worker_that_works_on_a_stolen_job_is_busy_and_not_asked_whether_it_answers() -> (
    None
):
    async with supervised() as slot:
        slot.slot.start_job(job(1))
        slot.slot.prefetch(job(2))
        slot.slot.replace_prefetched(job(2))
        slot.worker.answer()
        assert slot.new_reports() == ["answer to 1: body 1", "started 2"]
        for _ in range(10):
            slot.slot.check()
            await asyncio.sleep(1.0)
        assert slot.sentence == "worker 3 (core 5) is busy"
        slot.worker.answer()
        assert slot.new_reports() == ["answer to 2: body 2", "idle"]


@on_virtual_time
async def test_an_answer_that_nobody_asked_for_is_ignored() -> None:
    async with supervised() as slot:
        slot.slot.start_job(job(1))
        slot.worker.answer(done(Frame(Kind.CLASSIFY, 9, {})))
        assert slot.new_reports() == []
        assert slot.slot.state.state == "busy"


@on_virtual_time
async def test_a_lost_worker_gives_its_jobs_back_the_running_one_last() -> None:
    # Each goes to the front of the queue: the one that ran is then before the prefetched one.
    async with supervised() as slot:
        slot.slot.start_job(job(1))
        slot.slot.prefetch(job(2))
        slot.worker.crash()
        await settle()
        assert slot.new_reports() == ["unusable", "prefetched 2 lost", "lost 1", "idle"]
        assert slot.slot.state.restarts == 1


# -- Pings --------------------------------------------------------------------------------


@on_virtual_time
async def test_an_idle_worker_that_answers_pings_stays_in_service() -> None:
    async with supervised() as slot:
        for _ in range(20):
            slot.slot.check()
            await asyncio.sleep(1.0)
        assert slot.new_reports() == []
        assert slot.sentence == "worker 3 (core 5) is idle"


@on_virtual_time
async def test_a_busy_worker_is_not_pinged() -> None:
    async with supervised() as slot:
        slot.slot.start_job(job(1))
        for _ in range(20):
            slot.slot.check()
            await asyncio.sleep(1.0)
        assert len(slot.worker.inbox) == 1
        assert slot.slot.state.state == "busy"


@on_virtual_time
async def test_a_worker_that_leaves_a_ping_unanswered_gets_no_job_until_it_answers() -> None:
    async with supervised() as slot:
        slot.worker.hangs = True
        slot.slot.check()
        assert slot.slot.state.state == "idle"
        await pass_until(1.0)
        slot.slot.check()
        assert slot.new_reports() == ["unusable"]
        assert slot.sentence == (
            "worker 3 (core 5) does not answer: a ping has been unanswered for 1.0 s"
        )
        assert not slot.slot.state.ready
        slot.worker.go_on()
        await settle()
        assert slot.new_reports() == ["idle"]
        assert slot.slot.state.restarts == 0


@on_virtual_time
async def test_a_worker_that_is_silent_for_five_seconds_is_replaced() -> None:
    async with supervised() as slot:
        first = slot.worker
        first.hangs, first.end_takes = True, 0.5
        for _ in range(5):
            slot.slot.check()
            await asyncio.sleep(1.0)
            assert not first.was_killed
        slot.slot.check()
        await settle()
        assert first.was_killed
        assert slot.sentence == (
            "worker 3 (core 5) is starting: it has not answered a ping for 5 s"
        )
        await pass_until(6.0)
        assert slot.slot.state.pid == slot.worker.pid != first.pid
        slot.slot.check()
        await pass_until(12.0)
        assert slot.slot.state.state == "idle"


@on_virtual_time
async def test_a_worker_that_got_a_job_while_a_ping_was_under_way_is_not_silent() -> None:
    async with supervised() as slot:
        slot.worker.hangs = True
        slot.slot.check()
        slot.slot.start_job(job(1))
        await pass_until(20.0)
        slot.slot.check()
        assert slot.sentence.endswith("is busy")
        slot.worker.go_on()
        await settle()
        slot.worker.answer()
        slot.slot.check()
        await settle()
        assert slot.sentence.endswith("is idle")


@on_virtual_time
async def test_a_new_worker_is_not_blamed_for_a_ping_that_the_last_one_left_unanswered() -> None:
    async with supervised() as slot:
        slot.worker.hangs = True
        slot.slot.check()
        slot.worker.crash()
        await pass_until(1.0)
        slot.slot.check()
        await settle()
        assert slot.sentence == "worker 3 (core 5) is idle"
        assert slot.new_reports() == ["unusable", "idle"]
