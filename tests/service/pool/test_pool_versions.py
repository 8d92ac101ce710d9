"""Versions that come and go in a pool with real processes."""

import asyncio
import itertools
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from service.engine import BundleError
from service.errors import UnknownModelError, WorkerLostError
from service.http.in_flight import RequestCount
from service.repository import ModelKey, read_model
from tests.service.pool.test_pool import PNG, TINY, pids, running, send, stopped, submit, until
from tests.support.processes import children_of
from tests.support.publishing import TENSORS, publish


def test_queued_jobs_of_a_retired_version_are_answered_while_another_is_loaded(
    own_repository: Path, shelf: Path
) -> None:
    new = ModelKey("tiny", 2)

    async def use() -> None:
        async with running(own_repository, workers=2) as pool:
            with stopped(pool):
                jobs = [await submit(pool) for _ in range(5)]
                pool.retire(TINY)
                loading = asyncio.create_task(pool.load(new, read_model(new, shelf / "tiny" / "2")))
            assert len(await asyncio.gather(*jobs, loading)) == 6
            assert await pool.scores(TINY, PNG)
            await pool.unload(TINY)
            assert await pool.scores(new, PNG)
            with pytest.raises(UnknownModelError, match="no longer loaded"):
                await pool.scores(TINY, PNG)
            assert pool.state().restarts == 0

    asyncio.run(use())


def test_a_version_that_changed_after_it_was_proved_is_kept_by_no_worker(
    own_repository: Path, shelf: Path
) -> None:
    new = ModelKey("tiny", 2)
    wrong = read_model(new, shelf / "tiny" / "2")
    wrong = replace(wrong, manifest=replace(wrong.manifest, digest="0" * 64))

    async def use() -> None:
        async with running(own_repository, workers=2) as pool:
            with pytest.raises(BundleError, match="it was replaced after it was published"):
                await pool.load(new, wrong)
            assert not pool.state().obstacles()
            with pytest.raises(UnknownModelError):
                await pool.scores(new, PNG)

    asyncio.run(use())


def test_a_trial_that_is_lost_costs_no_worker(
    own_repository: Path, shelf: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    new = ModelKey("tiny", 2)
    folder = publish(shelf / "tiny" / "2", tmp_path_factory.mktemp("blocked"))
    (folder / TENSORS).unlink()
    os.mkfifo(folder / TENSORS)

    async def use() -> None:
        async with running(own_repository, workers=1) as pool:
            before = set(children_of(os.getpid()))
            loading = asyncio.create_task(pool.load(new, read_model(new, folder)))
            await until(lambda: set(children_of(os.getpid())) > before)
            (trial,) = set(children_of(os.getpid())) - before
            send(trial, signal.SIGKILL)
            with pytest.raises(WorkerLostError, match="tried to load it was lost: it went away"):
                await loading
            assert (pool.state().restarts, pool.state().obstacles()) == (0, [])
            await pool.load(new, read_model(new, shelf / "tiny" / "2"))
            assert await pool.scores(new, PNG)

    asyncio.run(use())


def test_a_worker_that_hangs_before_it_could_load_is_replaced_by_one_that_has_all(
    own_repository: Path, shelf: Path
) -> None:
    new = ModelKey("tiny", 2)

    async def use() -> None:
        async with running(own_repository, workers=2) as pool:
            asleep = pids(pool)[0]
            send(asleep, signal.SIGSTOP)
            await pool.load(new, read_model(new, shelf / "tiny" / "2"))
            await until(lambda: asleep not in pids(pool) and not pool.state().obstacles())
            assert await asyncio.gather(*(pool.scores(new, PNG) for _ in range(8)))
            assert pool.state().restarts == 1

    asyncio.run(use())


def test_requests_are_waited_for_up_to_the_present() -> None:
    async def use() -> None:
        count = RequestCount()
        await count.wait_for_present()
        first, second = count.begin(), count.begin()
        waiting = asyncio.create_task(count.wait_for_present())
        await asyncio.sleep(0)
        third = count.begin()
        for number, over in ((second, False), (first, True), (third, True)):
            count.end(number)
            for _ in itertools.repeat(None, 3):
                await asyncio.sleep(0)
            assert waiting.done() == over

    asyncio.run(use())
