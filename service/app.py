"""Puts the service together: settings, models, pool, routes and error answers."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware

from service import __version__
from service.express import Endpoint, Express
from service.http.auth import RequireKey, read_keys
from service.http.body import BodyGuard, BodyLimits
from service.http.in_flight import InFlight, RequestCount
from service.http.problems import install_handlers
from service.http.request_log import RequestTrace
from service.observability.metrics import Metrics, PoolCollector
from service.observability.tracing import Tracing
from service.pool.pool import Pool
from service.reload import Reloader
from service.repository import Repository
from service.routes import classify, codes, health, metrics, models, v2
from service.routes.context import Context
from service.routes.openapi import complete_openapi
from service.settings import Settings

__all__ = ["create_app"]

logger = logging.getLogger(__name__)

_DESCRIPTION = """\
Image labels and sparse codes, fast, on plain CPUs.

Errors are problem documents (RFC 9457, `application/problem+json`) with an extra member
`error`. Every answer carries `X-Request-Id`: yours, if it is up to 64 letters, digits,
dots, dashes and underscores, otherwise a new one. `Server-Timing` tells where its time went.
"""

_TAGS = [
    {"name": "classify", "description": "Images to labels."},
    {"name": "codes", "description": "Descriptors and images to sparse codes."},
    {"name": "models", "description": "What is loaded."},
    {"name": "health", "description": "Probes."},
]


def create_app(settings: Settings, tracing: Tracing | None = None) -> FastAPI:
    """The application; models are loaded when it starts. Traces go where the settings say."""
    tracing = tracing or Tracing.to(settings.otlp_endpoint)
    requests = RequestCount()
    app = FastAPIOffline(
        # Swagger UI from the package's own files: a service behind a firewall reaches no CDN.
        static_url="/docs/assets",
        redoc_url=None,
        swagger_ui_parameters={"validatorUrl": None},
        title="Leafcode",
        version=__version__,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        lifespan=partial(_lifespan, settings=settings, tracing=tracing, requests=requests),
        telemetry=tracing.configuration,
    )
    app.openapi = partial(complete_openapi, app, settings)  # type: ignore[method-assign]
    app.state.metrics = Metrics()
    for module in (classify, codes, models, v2, health, metrics):
        app.include_router(module.router)
    install_handlers(app)
    _surround(app, settings, tracing, requests)
    return app


def _surround(app: FastAPI, settings: Settings, tracing: Tracing, requests: RequestCount) -> None:
    """Add the middleware; the last one added is the outermost."""
    if not tracing.active:  # FastAPI's spans tell of what it does
        endpoints: dict[str, Endpoint] = {
            "/v1/classify": classify.classify,
            "/v1/codes": codes.encode,
        }
        app.add_middleware(Express, endpoints=endpoints)
    app.add_middleware(BodyGuard, limits=BodyLimits.of(settings))
    app.add_middleware(InFlight, count=requests)
    app.state.keys = keys = read_keys(settings)
    if keys is not None:
        app.add_middleware(
            RequireKey, keys=keys, open_paths=frozenset(settings.listed("open_paths"))
        )
    origins = settings.listed("cors_origins")
    if origins:
        # Outside of the keys: a browser asks for permission without one.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Server-Timing", "Retry-After"],
        )
    app.add_middleware(RequestTrace, metrics=app.state.metrics, tracing=tracing)


@asynccontextmanager
async def _lifespan(
    app: FastAPI, settings: Settings, tracing: Tracing, requests: RequestCount
) -> AsyncIterator[None]:
    repository = await asyncio.to_thread(Repository.load, settings.models)
    pool = Pool(settings, repository.models)

    def publish(present: Repository) -> None:
        app.state.context = replace(app.state.context, repository=present)

    reloader = Reloader(settings.models, repository, pool, requests, publish)
    # Known before it is ready, so that probes can say what it waits for.
    app.state.context = Context(settings, repository, pool, reloader)
    app.state.metrics.registry.register(PoolCollector(lambda: app.state.context))
    await pool.start()
    reloader.start(settings.poll_seconds)
    try:
        yield
    finally:
        await reloader.stop()
        await pool.stop()
        await asyncio.to_thread(tracing.stop)
