"""What surrounds every request: an id, its record, one log line, an answer to bugs.

Plain ASGI, because Starlette's `BaseHTTPMiddleware` adds a task and a queue to each
request. `RequestLog` is the outermost middleware, so that every answer carries its id and
its timings, and every request is counted.
"""

import logging
import random
import re
import time
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.problems import respond
from service.observability.metrics import Metrics
from service.observability.request_record import RequestRecord, open_record
from service.observability.tracing import Tracing

__all__ = ["RequestLog"]

logger = logging.getLogger(__name__)

# What nginx calls a client that closed the connection before there was an answer.
_CLIENT_GONE = 499
_LINE = "%s %s %s %.1f ms id=%s"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestLog:
    """Takes or makes the request id, times, counts and logs the request, answers for bugs."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracing: Tracing) -> None:
        self.app = app
        self.metrics = metrics
        self.tracing = tracing if tracing.active else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; other messages pass."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        record = open_record(scope, _request_id(scope))

        async def send_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                # Now, because the span of the request ends with its last byte.
                if self.tracing is not None:
                    route = _route(scope)
                    name = f"{scope['method']} {route}"
                    record.trace_id = self.tracing.record(record, name, route)
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", record.request_id.encode()),
                    (b"server-timing", record.server_timing(time.perf_counter() - start)),
                ]
            else:
                record.bytes_out += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, send_recorded)
        except ClientDisconnect:
            record.status, record.reason = record.status or _CLIENT_GONE, "client-gone"
        except Exception as error:
            logger.exception("request id=%s failed", record.request_id)
            response = respond(scope, error)
            if not record.status:
                await response(scope, receive, send_recorded)
        finally:
            self._finish(scope, record, time.perf_counter() - start)

    def _finish(self, scope: Scope, record: RequestRecord, seconds: float) -> None:
        route = _route(scope)
        self.metrics.count(route, seconds, record)
        if logger.isEnabledFor(logging.INFO):
            _log(scope, route, record, seconds)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given = value.decode("latin-1")
            if _REQUEST_ID.fullmatch(given):
                return str(given)
            break
    # It tells requests apart and keeps nothing secret.
    return f"{random.getrandbits(128):032x}"


def _route(scope: Scope) -> str:
    """The template of the route that answered; one word for all that none did."""
    return getattr(scope.get("route"), "path", "none")


def _log(scope: Scope, route: str, record: RequestRecord, seconds: float) -> None:
    # The path arrives decoded; quoted again, a line feed in it cannot forge a log line.
    path = route if scope["path"] == route else quote(scope["path"])
    fields: dict[str, object] = {
        "request_id": record.request_id,
        "method": scope["method"],
        "path": path,
        "route": route,
        "status": record.status,
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
        "ms": record.milliseconds(seconds),
    }
    if record.model is not None:
        fields |= {"model": record.model.name, "model_version": record.model.version}
    if record.reason:
        fields["reason"] = record.reason
    if record.trace_id:
        fields["trace_id"] = record.trace_id
    outcome = "went away" if record.status == _CLIENT_GONE else record.status
    arguments = (scope["method"], path, outcome, seconds * 1e3, record.request_id)
    # Not `logger.info`, which looks for its caller and takes twice as long.
    line = logger.makeRecord(
        logger.name, logging.INFO, "", 0, _LINE, arguments, None, extra={"fields": fields}
    )
    logger.handle(line)
