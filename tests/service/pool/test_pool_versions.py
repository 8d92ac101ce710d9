"""Versions that come and go in a pool with real processes and real bundles."""

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.engine import BundleError
from service.errors import UnknownModelError, WorkerLostError
from service.pool.pool import Pool
from service.repository import ModelKey, read_model
from tests.support import bundles
from tests.support.pools import (
    TINY,
    SharedPool,
    classify,
    pids,
    send,
    shared_pool,
    stopped,
    submit,
    until,
)
from tests.support.processes import children_of
from tests.support.publishing import MANIFEST, TENSORS, publish


@pytest.fixture(scope="module")
def shared(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedPool]:
    """Two workers with version 1; each test brings a version of its own."""
    repository = tmp_path_factory.mktemp("repository")
    publish(shelf / "tiny" / "1", repository)
    with shared_pool(repository, workers=2) as pool:
        yield pool


def test_queued_jobs_of_a_retired_version_are_answered_while_another_is_loaded(
    shared: SharedPool, shelf: Path
) -> None:
    old, new = ModelKey("tiny", 2), ModelKey("tiny", 3)

    async def use(pool: Pool) -> None:
        await pool.load(old, read_model(old, shelf / "tiny" / "2"))
        with stopped(pool):
            jobs = [asyncio.create_task(classify(pool, old)) for _ in range(5)]
            await asyncio.sleep(0)
            pool.retire(old)
            loading = asyncio.create_task(pool.load(new, read_model(new, shelf / "tiny" / "3")))
        assert len(await asyncio.gather(*jobs, loading)) == 6
        assert await classify(pool, old)
        await pool.unload(old)
        assert await classify(pool, new)
        with pytest.raises(UnknownModelError, match="no longer loaded"):
            await classify(pool, old)
        assert pool.state().restarts == 0

    shared.run(use)


def test_a_version_that_changed_after_it_was_published_is_kept_by_no_worker(
    shared: SharedPool, shelf: Path
) -> None:
    new = ModelKey("tiny", 4)
    wrong = read_model(new, shelf / "tiny" / "4")
    wrong = replace(wrong, manifest=replace(wrong.manifest, digest="0" * 64))

    async def use(pool: Pool) -> None:
        with pytest.raises(BundleError, match="it was replaced after it was published"):
            await pool.load(new, wrong)
        assert not pool.state().obstacles(strict=True)
        with pytest.raises(UnknownModelError):
            await classify(pool, new)

    shared.run(use)


def test_a_process_that_is_lost_while_it_proves_a_version_costs_no_worker(
    shared: SharedPool, shelf: Path, tmp_path: Path
) -> None:
    new = ModelKey("tiny", 5)
    folder = publish(shelf / "tiny" / "5", tmp_path)
    os.truncate(folder / TENSORS, 1 << 40)  # all of it is hashed, which takes long

    async def use(pool: Pool) -> None:
        before, restarts = set(children_of(os.getpid())), pool.state().restarts
        loading = asyncio.create_task(pool.load(new, read_model(new, folder)))
        await until(lambda: set(children_of(os.getpid())) > before)
        (proving,) = set(children_of(os.getpid())) - before
        send(proving, signal.SIGKILL)
        with pytest.raises(WorkerLostError, match="that tried to load it was lost: its process"):
            await loading
        assert (pool.state().restarts, pool.state().obstacles(strict=True)) == (restarts, [])
        assert set(children_of(os.getpid())) == before

    shared.run(use)


def test_a_worker_that_dies_before_it_could_load_is_replaced_by_one_that_has_all(
    shared: SharedPool, shelf: Path
) -> None:
    new = ModelKey("tiny", 6)

    async def use(pool: Pool) -> None:
        with stopped(pool) as (first, _):
            job = await submit(pool)
            loading = asyncio.create_task(pool.load(new, read_model(new, shelf / "tiny" / "6")))
            send(first, signal.SIGKILL)
        await loading
        await until(lambda: first not in pids(pool) and not pool.state().obstacles(strict=True))
        assert await asyncio.gather(job, *(classify(pool, new) for _ in range(8)))
        assert await classify(pool, TINY)

    shared.run(use)


def test_the_files_of_a_version_are_held_open_until_it_is_unloaded_or_rejected(
    shared: SharedPool, shelf: Path, tmp_path: Path
) -> None:
    good, bad = ModelKey("tiny", 7), ModelKey("tiny", 8)
    folders = {key: publish(shelf / "tiny" / str(key.version), tmp_path) for key in (good, bad)}
    bundles.flip_byte(folders[bad] / TENSORS, -1)

    async def use(pool: Pool) -> None:
        for _ in range(3):
            await pool.load(good, read_model(good, folders[good]))
            assert held_files(tmp_path) == [folders[good] / MANIFEST, folders[good] / TENSORS]
            with pytest.raises(BundleError, match="SHA-256 is"):
                await pool.load(bad, read_model(bad, folders[bad]))
            pool.retire(good)
            await pool.unload(good)
            assert held_files(tmp_path) == []

    shared.run(use)


def held_files(folder: Path) -> list[Path]:
    """The files below a folder that this process has open; earlier tests may have others."""
    links = (entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
    return sorted(link for link in links if link.is_relative_to(folder))
