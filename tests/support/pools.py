"""A started pool, jobs for it, and signals that make its workers hang or die."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from service.engine import Engine
from service.pool.pool import Pool
from service.pool.state import WorkerState
from service.repository import ModelKey, Repository
from service.settings import load_settings
from tests.support import pictures
from tests.support.processes import DEADLINE_SECONDS, children_of

TINY = ModelKey("tiny", 1)
PNG = pictures.png()

Value = TypeVar("Value")


@asynccontextmanager
async def running(models: Path, **settings: object) -> AsyncIterator[Pool]:
    """A started pool that leaves no process behind."""
    before = set(children_of(os.getpid()))
    pool = Pool(load_settings(models=models, **settings), Repository.load(models).models)
    async with asyncio.timeout(DEADLINE_SECONDS):
        try:
            await pool.start()
            yield pool
        finally:
            await pool.stop()
            assert set(children_of(os.getpid())) == before


class SharedPool:
    """One running pool for several tests, each of which leaves it ready for the next."""

    def __init__(self, runner: asyncio.Runner, pool: Pool) -> None:
        self._runner = runner
        self._pool = pool

    def run(self, test: Callable[[Pool], Coroutine[Any, Any, Value]]) -> Value:
        """Run a test with the pool, and wait until all workers are ready again."""
        return self._runner.run(self._run(test))

    async def _run(self, test: Callable[[Pool], Coroutine[Any, Any, Value]]) -> Value:
        async with asyncio.timeout(DEADLINE_SECONDS):
            value = await test(self._pool)
            await until(lambda: all_ready(self._pool))
            return value


@contextmanager
def shared_pool(models: Path, **settings: object) -> Iterator[SharedPool]:
    """A pool that runs until the end of the block; its loop runs only during tests."""
    before = set(children_of(os.getpid()))
    with asyncio.Runner() as runner:
        pool = runner.run(_started(models, **settings))
        try:
            yield SharedPool(runner, pool)
        finally:
            runner.run(pool.stop())
    assert set(children_of(os.getpid())) == before


async def _started(models: Path, **settings: object) -> Pool:
    pool = Pool(load_settings(models=models, **settings), Repository.load(models).models)
    await pool.start()
    return pool


async def until(condition: Callable[[], bool]) -> None:
    """Look again and again; the time limit is that of the running pool."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def classify(pool: Pool, model: ModelKey = TINY) -> str:
    """The best label of a small image."""
    return best_label((await pool.classify(model, PNG, 1)).value)


def best_label(written: bytes) -> str:
    label: str = json.loads(written)["predictions"][0]["label"]
    return label


def expected_label(models: Path) -> str:
    """What `classify` must answer."""
    return Engine.load(models / "tiny" / "1").classify(PNG, 1)[0].label


async def submit(pool: Pool) -> "asyncio.Task[str]":
    """A job that has reached the queue or a worker."""
    task = asyncio.create_task(classify(pool))
    await asyncio.sleep(0)
    return task


def pids(pool: Pool) -> list[int]:
    return [worker.pid for worker in pool.state().workers if worker.pid is not None]


def all_ready(pool: Pool) -> bool:
    return not pool.state().obstacles(strict=True)


def the_busy(pool: Pool) -> WorkerState:
    """The one worker that is busy."""
    (worker,) = (worker for worker in pool.state().workers if worker.state == "busy")
    return worker


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
            with suppress(ProcessLookupError):  # killed a moment ago
                send(pid, signal.SIGCONT)
