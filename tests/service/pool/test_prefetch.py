"""Jobs in the hands of busy workers: started without delay, and never the worse for it."""

import asyncio
import json
import os
import signal
from functools import cache
from pathlib import Path

import pytest

from service.engine import Engine
from service.errors import DeadlineError
from service.pool.job import Job
from service.pool.pool import Pool
from tests.support import pictures
from tests.support.pools import TINY, running, until


@cache
def slow_image() -> bytes:
    """Few bytes, but it takes a worker long enough to be stopped in the middle."""
    return pictures.png(pictures.disc(4000, 4000))


@pytest.fixture(scope="module", autouse=True)
def _drawn() -> None:
    """Drawn before a pool runs: it takes two seconds, in which the event loop would stand."""
    slow_image()


async def label_of(pool: Pool, patience: float | None = None) -> str:
    outcome = await pool.classify(TINY, slow_image(), 1, patience)
    label: str = json.loads(outcome.value)[0]["label"]
    return label


def submit(pool: Pool, count: int) -> "list[asyncio.Task[str]]":
    return [asyncio.create_task(label_of(pool)) for _ in range(count)]


async def job_in_hand(pool: Pool) -> Job:
    """The one that has been in a worker's hand for longest, as soon as there is one."""
    await until(lambda: bool(pool._dispatcher._in_hands))
    return next(iter(pool._dispatcher._in_hands))


def process_of(pool: Pool, job: Job) -> int:
    pid = pool._dispatcher._running[job].state.pid
    assert pid is not None
    return pid


def right(models: Path, count: int) -> list[str]:
    return [Engine.load(models / "tiny" / "1").classify(slow_image(), 1)[0].label] * count


def test_a_busy_worker_has_its_next_job_in_hand_while_the_queue_is_long(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            tasks = submit(pool, 4)
            job = await job_in_hand(pool)
            assert job.attempts == 0
            assert pool.state().queue_depth == 1
            assert await asyncio.gather(*tasks) == right(models, 4)
            assert job.attempts == 1
            assert job.accepted < job.handed_over < job.started
            assert not pool._dispatcher._in_hands
            assert not pool._dispatcher._running

    asyncio.run(use())


def test_a_short_queue_is_left_to_whoever_has_time_first(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=2) as pool:
            tasks = submit(pool, 4)
            while not all(task.done() for task in tasks):
                assert not pool._dispatcher._in_hands
                await asyncio.sleep(0.001)

    asyncio.run(use())


def test_a_job_in_hand_is_not_blamed_for_the_end_of_its_worker(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            tasks = submit(pool, 4)
            job = await job_in_hand(pool)
            os.kill(process_of(pool, job), signal.SIGKILL)
            assert await asyncio.gather(*tasks) == right(models, 4)
            assert job.attempts == 1
            assert pool.state().restarts == 1

    asyncio.run(use())


def test_a_job_behind_a_stuck_worker_is_done_by_another(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=2) as pool:
            tasks = submit(pool, 8)
            job = await job_in_hand(pool)
            pid = process_of(pool, job)
            os.kill(pid, signal.SIGSTOP)
            await until(job.answer.done)
            assert sum(not task.done() for task in tasks) <= 2
            os.kill(pid, signal.SIGCONT)
            assert await asyncio.gather(*tasks) == right(models, 8)
            # What the worker still made of it was ignored, and it works as before.
            assert await asyncio.gather(*submit(pool, 4)) == right(models, 4)
            assert pool.state().restarts == 0

    asyncio.run(use())


def test_a_job_in_hand_is_answered_at_its_deadline_and_its_worker_lives(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            tasks = submit(pool, 2)
            impatient = asyncio.create_task(label_of(pool, patience=1.0))
            tasks += submit(pool, 2)
            await until(
                lambda: any(j.deadline - j.accepted == 1.0 for j in pool._dispatcher._in_hands)
            )
            job = await job_in_hand(pool)
            pid = process_of(pool, job)
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(DeadlineError, match="it was still queued"):
                await impatient
            os.kill(pid, signal.SIGCONT)
            assert await asyncio.gather(*tasks) == right(models, 4)
            assert pool.state().restarts == 0

    asyncio.run(use())


def test_a_job_in_hand_that_nobody_waits_for_is_not_done_by_another(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=2) as pool:
            tasks = submit(pool, 8)
            job = await job_in_hand(pool)
            pid = process_of(pool, job)
            os.kill(pid, signal.SIGSTOP)
            tasks.pop(job.number - 1).cancel()
            await until(lambda: sum(not task.done() for task in tasks) <= 1)
            pool._dispatcher._mean_seconds = 0.0  # so that it counts as stuck by now
            assert [await label_of(pool)] == right(models, 1)
            assert job.attempts == 0
            os.kill(pid, signal.SIGCONT)
            assert await asyncio.gather(*tasks) == right(models, 7)

    asyncio.run(use())
