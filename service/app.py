"""Puts the service together: settings, models, pool, routes, middleware and error answers."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from service import __version__
from service.http.auth import RequireKey, read_keys
from service.http.body import BodyLimits, LimitBodies
from service.http.in_flight import RequestCount
from service.http.problems import REASONS, install_handlers
from service.http.request_log import RequestLog
from service.http.traffic import Traffic
from service.observability.ended_requests import EndedRequests
from service.observability.logs import dropped_lines, log_config
from service.observability.metrics import Metrics, PoolCollector
from service.observability.tracing import Tracing
from service.pool.cores import Placement
from service.pool.fork_server_process import ForkServerProcess
from service.pool.memory import memory
from service.pool.pool import Pool
from service.reload import Reloader
from service.repository import ModelKey, Repository
from service.routes import classify, codes, dictionary, explain, health, metrics, models, page
from service.routes.context import Context
from service.routes.direct import DirectRoutes
from service.routes.openapi import complete_openapi
from service.routes.parameters import check_query
from service.routes.v2 import infer
from service.routes.v2 import metadata as v2_metadata
from service.settings import Settings
from service.siblings import Alone, Siblings

__all__ = ["Workers", "create_app", "entry_of"]

logger = logging.getLogger(__name__)

_DESCRIPTION = """\
Image labels and sparse codes, fast, on plain CPUs.

Errors are problem documents (RFC 9457, `application/problem+json`) with an extra member
`error`. Every answer carries `X-Request-Id`: yours, if it is up to 64 letters, digits,
dots, dashes and underscores, otherwise a new one. `Server-Timing` tells where its time went.
"""

_ROUTERS = (models.router, dictionary.router, v2_metadata.router, health.router, metrics.router)
_DIRECT_ROUTERS = (
    classify.direct_router,
    explain.direct_router,
    codes.direct_router,
    infer.direct_router,
)

_TAGS = [
    {"name": "classify", "description": "Images to labels."},
    {"name": "explain", "description": "Where the score of a label comes from."},
    {"name": "codes", "description": "Descriptors and images to sparse codes."},
    {"name": "models", "description": "What is loaded."},
    {"name": "health", "description": "Probes."},
]


@dataclass(frozen=True)
class Workers:
    """Where workers come from and which they are, if not as the settings say."""

    fork_server: ForkServerProcess | None = None
    """One that was started already."""
    placement: Placement | None = None


def create_app(
    settings: Settings,
    tracing: Tracing | None = None,
    workers: Workers | None = None,
    siblings: Siblings | None = None,
) -> FastAPI:
    """The application; models are loaded when it starts. Traces go where the settings say.

    Its `workers` are those of the settings unless given. There are no `siblings` unless given.
    """
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
        generate_unique_id_function=_operation_id,
        dependencies=[Depends(check_query)],
        lifespan=partial(_lifespan, settings, tracing, requests, workers or Workers()),
        telemetry=tracing.configuration,
    )
    app.openapi = partial(complete_openapi, app, _DIRECT_ROUTERS, settings)  # type: ignore[method-assign]
    app.state.traced = tracing.active
    app.state.siblings = siblings or Alone()
    app.state.metrics = Metrics(REASONS)
    app.state.ended_requests = EndedRequests(app.state.metrics)
    app.state.metrics.watch(
        "counter",
        "leafcode_log_lines_dropped",
        "Lines of the log that were dropped, because standard error was not read.",
        dropped_lines,
    )
    app.state.traffic = _traffic(settings, app.state.metrics)
    _watch_limits(settings, app.state.metrics)
    app.state.page_paths = page.read_paths() if settings.page else frozenset()
    # The page comes first, because / leads to the documentation where there is none.
    for router in (page.router, *_ROUTERS) if settings.page else _ROUTERS:
        app.include_router(router)
    install_handlers(app)
    _add_middleware(app, settings, tracing, requests)
    return app


def _traffic(settings: Settings, metrics: Metrics) -> Traffic:
    # Room for one body at least: larger ones are rejected for their size.
    room = max(settings.transfer_bytes, settings.max_body_bytes)
    traffic = Traffic(settings.max_connections, room)
    metrics.watch(
        "gauge", "leafcode_connections", "Open connections.", lambda: len(traffic.connections)
    )
    metrics.watch(
        "gauge",
        "leafcode_transfer_bytes",
        "Bytes of bodies that are not complete and of answers that are not read.",
        lambda: traffic.bytes,
    )
    return traffic


def _watch_limits(settings: Settings, metrics: Metrics) -> None:
    """What else is needed to tell how much room is left."""
    metrics.watch(
        "gauge", "leafcode_queue_limit", "Jobs that may wait.", lambda: settings.queue_size
    )
    if memory() is None:  # the system does not tell
        return
    metrics.watch(
        "gauge",
        "leafcode_memory_bytes",
        "Memory in use under the tightest limit, the container's or else the machine's.",
        lambda: found.used if (found := memory()) else nan,
    )
    metrics.watch(
        "gauge",
        "leafcode_memory_limit_bytes",
        "That limit: when it is reached, the kernel kills a process.",
        lambda: found.limit if (found := memory()) else nan,
    )


def _operation_id(route: APIRoute) -> str:
    return route.name


def _add_middleware(
    app: FastAPI, settings: Settings, tracing: Tracing, requests: RequestCount
) -> None:
    """From the innermost to the outermost: the last one added sees a request first."""
    app.add_middleware(DirectRoutes, routers=_DIRECT_ROUTERS, owner=app)
    app.add_middleware(LimitBodies, limits=BodyLimits.of(settings), traffic=app.state.traffic)
    app.state.keys = keys = read_keys(settings)
    if keys is not None:
        # The page has a field for the key, which its calls carry.
        open_paths = app.state.page_paths | set(settings.listed("open_paths"))
        app.add_middleware(RequireKey, keys=keys, open_paths=open_paths)
    origins = settings.listed("cors_origins")
    if origins:
        # Outside of the keys: a browser asks for permission without one.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Server-Timing", "Retry-After", "ETag"],
        )
    app.add_middleware(
        RequestLog, requests=requests, ended=app.state.ended_requests, tracing=tracing
    )


def entry_of(app: FastAPI) -> ASGIApp:
    """The application as a server calls it, from its request log inwards.

    FastAPI and Starlette put layers around the first middleware, which trace requests and
    answer for bugs. Without traces they do nothing that the request log does not do.
    """
    if app.state.traced:
        return app
    layer: Any = app.build_middleware_stack()
    while not isinstance(layer, RequestLog):
        layer = layer.app
    return layer


@asynccontextmanager
async def _lifespan(
    settings: Settings,
    tracing: Tracing,
    requests: RequestCount,
    workers: Workers,
    app: FastAPI,
) -> AsyncIterator[None]:
    repository = await asyncio.to_thread(Repository.load, settings.models, settings.default_model)
    logs = log_config(settings.log_level, settings.log_format)
    pool = Pool(settings, repository.models, logs, workers.fork_server, workers.placement)
    siblings: Siblings = app.state.siblings
    # Known before it is ready, so that probes can say what it waits for.
    app.state.context = Context(settings, repository, pool, siblings)

    def publish(present: Repository) -> None:
        app.state.context = replace(app.state.context, repository=present)
        siblings.tell(present)

    app.state.reloader = reloader = Reloader(settings.models, repository, pool, requests, publish)
    reloader.agree = siblings.agree
    app.state.metrics.registry.register(
        PoolCollector(pool.state, lambda: app.state.context.repository.manifests)
    )
    app.state.metrics.watch(
        "gauge",
        "leafcode_rejected_versions",
        "Versions that were found and are not served; /v1/models says why.",
        lambda: len(app.state.context.repository.rejected),
    )
    await pool.start()
    logger.info("requests that name no model get %s", ModelKey.of(repository.default.manifest))
    reloader.start(settings.poll_seconds)
    try:
        yield
    finally:
        await reloader.stop()
        await pool.stop()
        app.state.ended_requests.flush()
        await asyncio.to_thread(tracing.stop)
