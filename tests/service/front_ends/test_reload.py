"""A version that is loaded here and that another front end cannot load."""

import asyncio
from pathlib import Path

from service.errors import WorkerLostError
from service.http.in_flight import RequestCount
from service.pool.pool import Pool
from service.reload import Reloader
from service.repository import ModelKey, Repository
from tests.support import pools, publishing


async def refuse(key: ModelKey, digest: str) -> None:
    raise WorkerLostError(f"another front end could not load {key.version} {digest[:0]}")


async def accept(key: ModelKey, digest: str) -> None:
    assert (key, len(digest)) == (ModelKey("tiny", 2), 64)


def wanted_by(pool: Pool) -> list[int]:
    return [fields["version"] for fields in pool.versions().wanted]


def test_it_is_served_nowhere_until_all_have_it(own_repository: Path, shelf: Path) -> None:
    published: list[Repository] = []

    async def run() -> None:
        async with pools.running(own_repository, workers=1) as pool:
            present = Repository.load(own_repository)
            reloader = Reloader(own_repository, present, pool, RequestCount(), published.append)
            publishing.publish(shelf / "tiny" / "2", own_repository)
            reloader.agree = refuse
            await reloader.look()
            assert wanted_by(pool) == [1]
            (rejection,) = published[-1].rejected
            assert (rejection.key.version, "another front end" in rejection.error) == (2, True)
            reloader.agree = accept
            await reloader.look()
            assert wanted_by(pool) == [1, 2]
            await reloader.stop()

    asyncio.run(run())
    assert published[-1].versions("tiny") == [1, 2]
    assert published[-1].rejected == ()
