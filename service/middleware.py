"""What surrounds every request: an id, one log line, a last resort, a limit on the body.

Plain ASGI, because Starlette's `BaseHTTPMiddleware` adds a task and a queue to each
request. `RequestTrace` is the outermost layer, so that every answer carries its id.
"""

import logging
import re
import time
import uuid
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import OversizedBodyError
from service.problems import unexpected

__all__ = ["BodyLimit", "RequestTrace"]

logger = logging.getLogger(__name__)

REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestTrace:
    """Takes or makes the request id, echoes it, logs the request, answers for bugs."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; everything else passes."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope))
        scope.setdefault("state", {})["request_id"] = request_id
        start, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except ClientDisconnect:
            logger.info("the client of request id=%s went away", request_id)
        except Exception as error:
            logger.exception("request id=%s failed", request_id)
            if not status:
                await unexpected(error, request_id)(scope, receive, send_with_id)
        finally:
            _log(scope, status, (time.perf_counter() - start) * 1e3, request_id)


class BodyLimit:
    """Refuses bodies over a limit, by their stated length or while they arrive.

    Starlette's `RequestBodyLimitMiddleware` replaces the answer to a stated length
    by plain text. Raising where the route reads lets the error take the usual road.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what the application receives."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        stated = Headers(scope=scope).get("content-length", "")
        received = 0

        async def receive_within_limit() -> Message:
            nonlocal received
            # Before the first read: a client that asked "Expect: 100-continue" never sends.
            self._check(int(stated) if stated.isdecimal() else 0)
            message = await receive()
            received += len(message.get("body", b""))
            self._check(received)
            return message

        await self.app(scope, receive_within_limit, send)

    def _check(self, size: int) -> None:
        if size > self.max_bytes:
            raise OversizedBodyError(
                f"the body has at least {size} bytes, expected at most {self.max_bytes}"
            )


def _request_id(headers: Headers) -> str:
    given = headers.get(REQUEST_ID_HEADER, "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _log(scope: Scope, status: int, milliseconds: float, request_id: str) -> None:
    # The path arrives decoded; quoted again, a line feed in it cannot forge a log line.
    path = quote(scope["path"])
    logger.info("%s %s %d %.1f ms id=%s", scope["method"], path, status, milliseconds, request_id)
