"""A started pool, jobs for it, and signals that make its workers hang or die."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from service.pool.pool import Pool
from service.repository import ModelKey, Repository
from service.settings import load_settings
from tests.support import pictures
from tests.support.processes import children_of

TINY = ModelKey("tiny", 1)
PNG = pictures.png()
PATIENCE_SECONDS = 60


@asynccontextmanager
async def running(models: Path, **settings: int) -> AsyncIterator[Pool]:
    """A started pool that leaves no process behind."""
    before = children_of(os.getpid())
    pool = Pool(load_settings(models=models, **settings), Repository.load(models).models)
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            await pool.start()
            yield pool
        finally:
            await pool.stop()
            assert children_of(os.getpid()) == before


async def until(condition: Callable[[], bool]) -> None:
    """Look again and again; the time limit is that of `running`."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def classify(pool: Pool, timeout: float | None = None) -> str:
    outcome = await pool.classify(TINY, PNG, 1, timeout)
    return best_label(outcome.value)


def best_label(written: bytes) -> str:
    label: str = json.loads(written)[0]["label"]
    return label


async def submit(pool: Pool, timeout: float | None = None) -> "asyncio.Task[str]":
    """A job that has reached the queue or a worker."""
    task = asyncio.create_task(classify(pool, timeout))
    await asyncio.sleep(0)
    return task


def pids(pool: Pool) -> list[int]:
    return [worker.pid for worker in pool.state().workers if worker.pid is not None]


def send(pid: int | None, number: signal.Signals) -> None:
    assert pid is not None
    os.kill(pid, number)


@contextmanager
def stopped(pool: Pool) -> Iterator[list[int]]:
    """All workers hang until the end of the block."""
    held = pids(pool)
    for pid in held:
        send(pid, signal.SIGSTOP)
    try:
        yield held
    finally:
        for pid in set(held) & set(pids(pool)):
            send(pid, signal.SIGCONT)
