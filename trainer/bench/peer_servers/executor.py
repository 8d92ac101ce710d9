"""A plain FastAPI application that hands images to a `ProcessPoolExecutor`."""

import asyncio
import multiprocessing
import os
import sys
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import uvicorn
from fastapi import FastAPI, Request

from service.engine import Engine
from trainer.bench.peer_servers import Answer, announce, answer, free_port, load_engine

__all__ = ["create_app", "main"]

_engine: Engine | None = None


def _prepare(bundle: str, cores: "Queue[int]", everyone: Barrier) -> None:
    global _engine  # noqa: PLW0603  # an executor's initializer can hand over in no other way
    _engine = load_engine(bundle, cores.get())
    everyone.wait()


def _classify(data: bytes) -> Answer:
    assert _engine is not None  # noqa: S101
    return answer(_engine.classify(data))


def create_app(bundle: str, cores: Sequence[int]) -> FastAPI:
    """Create an application with one route and one executor."""
    context = multiprocessing.get_context("spawn")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        places = context.Queue()
        for core in cores:
            places.put(core)
        preparation = (bundle, places, context.Barrier(len(cores)))
        with ProcessPoolExecutor(len(cores), context, _prepare, preparation) as executor:
            app.state.executor = executor
            # A worker starts with work that finds none idle, and none is until all are there.
            starts = [executor.submit(os.getpid) for _ in cores]
            await asyncio.gather(*map(asyncio.wrap_future, starts))
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/classify")
    async def classify(request: Request) -> Answer:
        data = await request.body()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(app.state.executor, _classify, data)

    return app


def main(bundle: str, *cores: str) -> None:
    """Serve until stopped."""
    port = free_port()
    app = create_app(bundle, [int(core) for core in cores])
    announce(port, "/openapi.json")
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
