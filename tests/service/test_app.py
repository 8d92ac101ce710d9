"""The application without a server: what only shows from inside."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from service.app import create_app
from service.context import Context
from service.engine import Codes, Prediction
from service.engine.arrays import Float32Array
from service.errors import NotReadyError
from service.pool import Pool, ThreadPool
from service.repository import ModelKey, Repository
from service.settings import Settings
from tests import pictures
from tests.service.test_classify import problem_of


class MeetingPool:
    """A pool whose images wait for one another; they never end one after the other."""

    def __init__(self, n_images: int) -> None:
        self.ready = True
        self.barrier = asyncio.Barrier(n_images)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def classify(self, model: ModelKey, data: bytes, top_k: int) -> tuple[Prediction, ...]:
        await self.barrier.wait()
        return (Prediction(f"{model} {len(data)} {top_k}", 1.0),)

    async def encode(self, model: ModelKey, descriptors: Float32Array) -> Codes:
        raise NotImplementedError


@asynccontextmanager
async def client_of(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


def test_images_of_one_request_run_concurrently(models: Path) -> None:
    async def send_three() -> httpx.Response:
        app = create_app(Settings(models=models))
        pool: Pool = MeetingPool(3)
        app.state.context = Context(Settings(models=models), Repository.load(models), pool)
        async with client_of(app) as client, asyncio.timeout(60):
            files = [("image", bytes(size)) for size in (1, 2, 3)]
            return await client.post("/v1/classify?model=tiny&top_k=7", files=files)

    results = asyncio.run(send_three()).json()["results"]
    labels = [result["predictions"][0]["label"] for result in results]
    assert labels == [f"tiny version 1 {size} 7" for size in (1, 2, 3)]


@pytest.mark.parametrize("path", ["/readyz", "/v1/models"])
def test_a_service_that_has_not_started_is_alive_but_not_ready(models: Path, path: str) -> None:
    async def ask() -> tuple[httpx.Response, httpx.Response]:
        async with client_of(create_app(Settings(models=models))) as client:
            return await client.get("/healthz"), await client.get(path)

    alive, ready = asyncio.run(ask())
    assert alive.status_code == 200
    problem_of(ready, 503)


def test_a_service_is_ready_between_start_and_stop(models: Path) -> None:
    async def ask() -> list[int]:
        app = create_app(Settings(models=models))
        async with client_of(app) as client:
            async with app.router.lifespan_context(app):
                while_running = await client.get("/readyz")
            return [while_running.status_code, (await client.get("/readyz")).status_code]

    assert asyncio.run(ask()) == [200, 503]


def test_a_bug_is_answered_without_its_details(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("a secret")

    async def ask() -> httpx.Response:
        app = create_app(Settings(models=models))
        app.add_api_route("/bug", fail)
        async with client_of(app) as client:
            return await client.get("/bug", headers={"X-Request-Id": "buggy"})

    response = asyncio.run(ask())
    assert "buggy" in str(problem_of(response, 500)["detail"])
    assert "secret" not in response.text
    assert "a secret" in caplog.text


def test_a_pool_that_has_stopped_refuses_work(models: Path) -> None:
    async def use() -> None:
        settings = Settings(models=models)
        pool = ThreadPool(Repository.load(models), settings.image_limits, threads=2)
        await pool.start()
        assert await pool.classify(ModelKey("tiny", 1), pictures.png(), 1)
        await pool.stop()
        await pool.stop()
        with pytest.raises(NotReadyError, match="starting or stopping"):
            await pool.classify(ModelKey("tiny", 1), pictures.png(), 1)

    asyncio.run(use())
