"""Puts the service together: settings, models, pool, routes and error answers."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from fastapi import FastAPI

from service import __version__
from service.context import Context
from service.in_flight import InFlight, RequestCount
from service.middleware import BodyLimit, RequestTrace
from service.pool import Pool
from service.problems import install_handlers
from service.reload import Reloader
from service.repository import Repository
from service.routes import classify, codes, health, models
from service.settings import Settings

__all__ = ["create_app"]

logger = logging.getLogger(__name__)

_DESCRIPTION = """\
Image labels and sparse codes, fast, on plain CPUs.

Errors are problem documents (RFC 9457, `application/problem+json`) with an extra member
`error`. Every answer carries `X-Request-Id`: yours, if it is up to 64 letters, digits,
dots, dashes and underscores, otherwise a new one.
"""


def create_app(settings: Settings) -> FastAPI:
    """The application; models are loaded when it starts."""
    requests = RequestCount()
    app = FastAPI(
        title="Leafcode",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=partial(_lifespan, settings=settings, requests=requests),
        redoc_url=None,
    )
    for module in (classify, codes, models, health):
        app.include_router(module.router)
    install_handlers(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(InFlight, count=requests)
    app.add_middleware(RequestTrace)
    return app


@asynccontextmanager
async def _lifespan(
    app: FastAPI, settings: Settings, requests: RequestCount
) -> AsyncIterator[None]:
    repository = await asyncio.to_thread(Repository.load, settings.models)
    pool = Pool(settings, repository.models)

    def publish(present: Repository) -> None:
        app.state.context = replace(app.state.context, repository=present)

    reloader = Reloader(settings.models, repository, pool, requests, publish)
    # Known before it is ready, so that probes can say what it waits for.
    app.state.context = Context(settings, repository, pool, reloader)
    await pool.start()
    reloader.start(settings.poll_seconds)
    try:
        yield
    finally:
        await reloader.stop()
        await pool.stop()
