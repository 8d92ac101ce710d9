"""The application without a server: what only shows from inside."""

import asyncio
from pathlib import Path

import httpx
import pytest
from starlette.types import Message

from service.app import create_app
from service.settings import Settings
from tests.support.clients import client_of, problem_of


@pytest.mark.parametrize(
    "path", ["/readyz", "/v1/models", "/v2/health/ready", "/v2/models/apples/ready"]
)
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


def test_another_server_starts_and_stops_the_application_by_its_lifespan(models: Path) -> None:
    async def use() -> list[str]:
        app, told = create_app(Settings(models=models)), []
        messages = [{"type": "lifespan.shutdown"}, {"type": "lifespan.startup"}]

        async def receive() -> Message:
            return messages.pop()

        async def send(message: Message) -> None:
            told.append(f"{message['type']} {app.state.context.pool.accepting}")

        await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
        return told

    assert asyncio.run(use()) == [
        "lifespan.startup.complete True",
        "lifespan.shutdown.complete False",
    ]
