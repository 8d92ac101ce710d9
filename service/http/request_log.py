"""What surrounds every request: an id, its record, one log line, an answer to bugs.

Plain ASGI, because Starlette's `BaseHTTPMiddleware` adds a task and a queue to each
request. `RequestLog` is the outermost middleware, so that every answer carries its id and
its timings, and every request is counted.
"""

import logging
import random
import re
import time
from collections.abc import Awaitable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.in_flight import RequestCount
from service.http.problems import respond
from service.observability.ended_requests import EndedRequests
from service.observability.request_record import CLIENT_GONE, RequestRecord, open_record
from service.observability.tracing import Tracing

__all__ = ["RequestLog"]

logger = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestLog:
    """Takes or makes the request id, times, counts and logs the request, answers for bugs."""

    def __init__(
        self, app: ASGIApp, requests: RequestCount, ended: EndedRequests, tracing: Tracing
    ) -> None:
        self.app = app
        self.requests = requests
        self.ended = ended
        self.tracing = tracing if tracing.active else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; other messages pass."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, number = time.perf_counter(), self.requests.begin()
        record = open_record(scope, _request_id(scope))

        def send_recorded(message: Message) -> Awaitable[None]:
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
            return send(message)

        try:
            await self.app(scope, receive, send_recorded)
        except ClientDisconnect:
            record.status, record.reason = record.status or CLIENT_GONE, "client-gone"
        except Exception as error:
            logger.exception("request id=%s failed", record.request_id)
            response = respond(scope, error)
            if not record.status:
                await response(scope, receive, send_recorded)
        finally:
            self.requests.end(number)
            self._finish(scope, record, time.perf_counter() - start)

    def _finish(self, scope: Scope, record: RequestRecord, seconds: float) -> None:
        record.method, record.path, record.route = scope["method"], scope["path"], _route(scope)
        record.seconds, record.ended = seconds, time.time()
        self.ended.add(record)


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
