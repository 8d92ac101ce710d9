"""Versions that a worker in service loads and unloads between two jobs."""

import asyncio

import pytest

from service.engine import BundleError, UnreadableBundleError
from service.errors import WorkerLostError
from service.pool.frames import Fields
from service.pool.worker_slot import Versions
from tests.support.fake_slots import now, pass_until
from tests.support.supervised_slots import ONE, TWO, Supervised, job, supervised
from tests.support.virtual_time import on_virtual_time, settle


async def update(slot: Supervised, *wanted: Fields, retiring: tuple[Fields, ...] = ()) -> None:
    slot.source.current = Versions(wanted, retiring)
    await slot.slot.update_versions()


@on_virtual_time
async def test_an_idle_worker_leaves_service_while_it_loads_a_version() -> None:
    async with supervised() as slot:
        loading = asyncio.create_task(update(slot, ONE, TWO))
        slot.worker.hangs = True
        await settle()
        assert slot.new_reports() == ["unusable"]
        assert slot.sentence == "worker 3 (core 5) is loading or unloading a version"
        assert slot.slot.state.ready
        slot.worker.go_on()
        await loading
        assert slot.worker.loaded == [ONE, TWO]
        assert slot.new_reports() == ["idle"]


@on_virtual_time
async def test_a_worker_that_has_what_it_should_stays_in_service() -> None:
    async with supervised() as slot:
        await update(slot, ONE)
        assert slot.new_reports() == []


@on_virtual_time
async def test_a_version_that_retires_stays_until_it_is_wanted_nowhere() -> None:
    async with supervised() as slot:
        await update(slot, TWO, retiring=(ONE,))
        assert slot.worker.loaded == [ONE, TWO]
        await update(slot, TWO)
        assert slot.worker.loaded == [TWO]


@on_virtual_time
async def test_a_busy_worker_does_its_jobs_first_and_takes_no_others() -> None:
    async with supervised() as slot:
        slot.slot.start_job(job(1))
        slot.slot.prefetch(job(2))
        loading = asyncio.create_task(update(slot, ONE, TWO))
        await settle()
        slot.worker.answer()
        await settle()
        assert slot.new_reports() == ["answer to 1: body 1", "started 2"]
        assert not slot.slot.can_prefetch
        slot.worker.answer()
        assert slot.new_reports() == ["answer to 2: body 2"]
        await loading
        assert slot.worker.loaded == [ONE, TWO]
        assert slot.new_reports() == ["idle"]


@on_virtual_time
async def test_a_silent_worker_loads_as_soon_as_it_answers() -> None:
    async with supervised() as slot:
        slot.worker.hangs = True
        slot.slot.check()
        await pass_until(1.0)
        slot.slot.check()
        loading = asyncio.create_task(update(slot, ONE, TWO))
        await pass_until(2.0)
        slot.worker.go_on()
        await loading
        assert slot.worker.loaded == [ONE, TWO]
        assert slot.slot.state.state == "idle"


@on_virtual_time
async def test_a_worker_that_hangs_before_it_hears_of_a_version_is_just_replaced() -> None:
    async with supervised() as slot:
        slot.worker.hangs = True
        await update(slot, ONE, TWO)
        assert now() == 5.0
        assert slot.sentence == (
            "worker 3 (core 5) is starting: no answer within 5 s, while it was idle"
        )
        await settle()
        assert slot.worker.loaded == [ONE, TWO]


@on_virtual_time
async def test_a_worker_that_is_starting_loads_the_present_versions_by_itself() -> None:
    async with supervised() as slot:
        slot.workers.start_takes = 1.0
        slot.worker.crash()
        await settle()
        await update(slot, ONE, TWO)
        assert now() == 0.0
        await pass_until(2.0)
        assert slot.worker.loaded == [ONE, TWO]


@on_virtual_time
async def test_versions_that_change_while_a_worker_loads_are_loaded_too() -> None:
    async with supervised() as slot:
        slot.worker.hangs = True
        loading = asyncio.create_task(update(slot, ONE, TWO))
        await settle()
        slot.source.current = Versions((TWO,), ())
        slot.worker.go_on()
        await loading
        assert slot.worker.loaded == [TWO]


@on_virtual_time
async def test_a_version_that_cannot_be_loaded_costs_no_worker() -> None:
    async with supervised() as slot:
        slot.worker.load_error = BundleError("a digest differs")
        with pytest.raises(BundleError, match="a digest differs"):
            await update(slot, ONE, TWO)
        assert slot.slot.state.state == "idle"
        assert slot.slot.state.restarts == 0
        assert slot.new_reports() == ["unusable", "idle"]


@pytest.mark.parametrize(
    ("error", "loaded"),
    [
        (BundleError("a digest differs"), [TWO]),  # version ONE is given up
        (UnreadableBundleError("no memory"), [ONE, TWO]),  # another start may succeed
    ],
)
@on_virtual_time
async def test_a_replacement_goes_without_a_version_that_is_given_up_for_its_damage(
    error: BundleError, loaded: list[Fields]
) -> None:
    async with supervised() as slot:
        await update(slot, ONE, TWO)
        slot.source.drops = True
        slot.workers.load_errors.append(error)
        slot.workers.load_error_of = ONE
        slot.worker.crash()
        await pass_until(1.0)
        assert slot.slot.state.state == "idle"
        assert slot.worker.loaded == loaded


@on_virtual_time
async def test_a_replacement_that_cannot_go_without_a_version_says_why_and_is_tried_again() -> None:
    async with supervised() as slot:
        slot.workers.load_errors.extend([BundleError("a digest differs")] * 3)
        slot.worker.crash()
        await pass_until(0.15)
        assert "the last start failed: a digest differs" in slot.sentence
        await pass_until(2.0)
        assert slot.slot.state.state == "idle"


@on_virtual_time
async def test_a_worker_that_hangs_while_it_loads_is_killed_and_the_loading_fails() -> None:
    async with supervised() as slot:
        slot.worker.hangs_on_load = True
        with pytest.raises(WorkerLostError, match="no answer within 60 s"):
            await update(slot, ONE, TWO)
        assert slot.worker.was_killed
        assert slot.sentence == (
            "worker 3 (core 5) is starting: "
            "no answer within 60 s while it was loading another version"
        )


@on_virtual_time
async def test_a_worker_that_dies_while_it_loads_makes_the_loading_fail() -> None:
    async with supervised() as slot:
        slot.worker.hangs_on_load = True
        loading = asyncio.create_task(update(slot, ONE, TWO))
        await settle()
        slot.worker.crash()
        with pytest.raises(WorkerLostError, match="its process ended"):
            await loading
        await settle()
        assert slot.slot.state.state == "idle"
        assert slot.slot.state.restarts == 1


@on_virtual_time
async def test_a_worker_that_dies_during_its_last_job_makes_no_loading_fail() -> None:
    async with supervised() as slot:
        slot.slot.start_job(job(1))
        loading = asyncio.create_task(update(slot, ONE, TWO))
        await settle()
        slot.worker.crash()
        await loading
        await settle()
        assert slot.new_reports() == ["unusable", "lost 1", "idle"]
        assert slot.worker.loaded == [ONE, TWO]
