"""What surrounds every request: an id, its tally, one log line, a last resort.

Plain ASGI, because Starlette's `BaseHTTPMiddleware` adds a task and a queue to each
request. `RequestTrace` is the outermost layer, so that every answer carries its id and
its timings, and every request is counted.
"""

import logging
import random
import re
import time
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.problems import unexpected
from service.observability.metrics import Metrics
from service.observability.request_record import Tally, open_tally
from service.observability.tracing import Tracing

__all__ = ["RequestTrace"]

logger = logging.getLogger(__name__)

# What nginx calls a client that closed the connection before there was an answer.
_CLIENT_GONE = 499
_LINE = "%s %s %s %.1f ms id=%s"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestTrace:
    """Takes or makes the request id, times, counts and logs the request, answers for bugs."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracing: Tracing) -> None:
        self.app = app
        self.metrics = metrics
        self.tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; everything else passes."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        tally = open_tally(scope, _request_id(scope))

        async def send_with_tally(message: Message) -> None:
            if message["type"] == "http.response.start":
                tally.status = message["status"]
                # Now, because the span of the request ends with its last byte.
                tally.trace_id = self.tracing.record(tally)
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", tally.request_id.encode()),
                    (b"server-timing", _server_timing(tally, time.perf_counter() - start)),
                ]
            else:
                tally.bytes_out += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, send_with_tally)
        except ClientDisconnect:
            tally.status, tally.reason = tally.status or _CLIENT_GONE, "client-gone"
        except Exception as error:
            logger.exception("request id=%s failed", tally.request_id)
            if not tally.status:
                await unexpected(error, tally.request_id)(scope, receive, send_with_tally)
            tally.reason = "internal"
        finally:
            self._finish(scope, tally, time.perf_counter() - start)

    def _finish(self, scope: Scope, tally: Tally, seconds: float) -> None:
        route = _route(scope)
        self.metrics.count(route, seconds, tally)
        if logger.isEnabledFor(logging.INFO):
            _log(scope, route, tally, seconds)


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


def _server_timing(tally: Tally, seconds: float) -> bytes:
    stages = tally.milliseconds(seconds)
    return ", ".join([f"{stage};dur={value}" for stage, value in stages.items()]).encode()


def _log(scope: Scope, route: str, tally: Tally, seconds: float) -> None:
    # The path arrives decoded; quoted again, a line feed in it cannot forge a log line.
    path = route if scope["path"] == route else quote(scope["path"])
    fields: dict[str, object] = {
        "request_id": tally.request_id,
        "method": scope["method"],
        "path": path,
        "route": route,
        "status": tally.status,
        "bytes_in": tally.bytes_in,
        "bytes_out": tally.bytes_out,
        "ms": tally.milliseconds(seconds),
    }
    if tally.model is not None:
        fields |= {"model": tally.model.name, "model_version": tally.model.version}
    if tally.reason:
        fields["reason"] = tally.reason
    if tally.trace_id:
        fields["trace_id"] = tally.trace_id
    outcome = "went away" if tally.status == _CLIENT_GONE else tally.status
    arguments = (scope["method"], path, outcome, seconds * 1e3, tally.request_id)
    # Not `logger.info`, which looks for its caller and takes twice as long.
    record = logger.makeRecord(
        logger.name, logging.INFO, "", 0, _LINE, arguments, None, extra={"fields": fields}
    )
    logger.handle(record)
