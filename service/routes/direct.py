"""Direct routes: the calls that are made in bulk, served without FastAPI's machinery.

To match a route among all, to solve its parameters and to set up what none of our routes
uses takes FastAPI longer than all the rest of the application. So the few calls that carry
the load are plain Starlette routes in front of it. They are declared like any other, as
functions of the request on an `APIRouter`, from which OpenAPI documents them; each has this
one way through the service.
"""

from collections.abc import Awaitable, Callable, Iterable

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from service.engine import LeafcodeError
from service.http.problems import respond

__all__ = ["DirectRoutes", "WrittenJson"]

Endpoint = Callable[[Request], Awaitable[Response]]


class DirectRoutes:
    """Serves the routes of some routers itself, and passes everything else on."""

    def __init__(self, app: ASGIApp, routers: Iterable[APIRouter], owner: FastAPI) -> None:
        self._app = app
        self._owner = owner
        routes = [
            Route(route.path, _Call(route.path, route.endpoint), methods=route.methods)
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute)
        ]
        self._router = Router(routes, default=app, redirect_slashes=False)
        # The router would find them, too, one pattern after the other.
        self._posts: dict[str, ASGIApp] = {
            route.path: route.app for route in routes if not route.param_convertors
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; an expected error becomes its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)  # the start and stop of the application
            return
        scope["app"] = self._owner  # whose parts all routes use
        call = self._posts.get(scope["path"])
        if call is None or scope["method"] != "POST":
            call = self._router
        try:
            await call(scope, receive, send)
        except (LeafcodeError, HTTPException) as error:
            await respond(scope, error)(scope, receive, send)


class WrittenJson(Response):
    """A successful answer whose JSON is written already, without what Starlette looks at."""

    media_type = "application/json"

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.status_code = 200
        self.background = None
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
        ]


class _Call:
    """An endpoint as an ASGI application; metrics and logs know it by its path."""

    def __init__(self, path: str, endpoint: Endpoint) -> None:
        self.path = path
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        response = await self._endpoint(Request(scope, receive, send))
        await response(scope, receive, send)
