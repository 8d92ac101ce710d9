"""Puts the service together: settings, models, pool, routes and error answers."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from service import __version__
from service.context import Context
from service.middleware import BodyLimit, RequestTrace
from service.openapi import complete_openapi
from service.pool import Pool
from service.problems import install_handlers
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

_TAGS = [
    {"name": "classify", "description": "Images to labels."},
    {"name": "codes", "description": "Descriptors and images to sparse codes."},
    {"name": "models", "description": "What is loaded."},
    {"name": "health", "description": "Probes."},
]


def create_app(settings: Settings) -> FastAPI:
    """The application; models are loaded when it starts."""
    app = FastAPIOffline(
        # Swagger UI from the package's own files: a service behind a firewall reaches no CDN.
        static_url="/docs/assets",
        redoc_url=None,
        swagger_ui_parameters={"validatorUrl": None},
        title="Leafcode",
        version=__version__,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        lifespan=partial(_lifespan, settings=settings),
    )
    app.openapi = partial(complete_openapi, app, settings)  # type: ignore[method-assign]
    for module in (classify, codes, models, health):
        app.include_router(module.router)
    install_handlers(app)
    # The last one added is the outermost.
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestTrace)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI, settings: Settings) -> AsyncIterator[None]:
    repository = await asyncio.to_thread(Repository.load, settings.models)
    pool = Pool(settings, repository.models)
    # Known before it is ready, so that probes can say what it waits for.
    app.state.context = Context(settings, repository, pool)
    await pool.start()
    try:
        yield
    finally:
        await pool.stop()
