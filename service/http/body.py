"""Request bodies: limits on their bytes, encoding and time, and how routes read them.

A body that is too large, or comes too slowly, is rejected where the route reads it, so
that the error takes the usual road. Starlette's `RequestBodyLimitMiddleware` replaces
the answer to a stated length by plain text.
"""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.engine import EmptyImageError, LeafcodeError
from service.errors import (
    MalformedBodyError,
    OverloadedError,
    OversizedBodyError,
    SlowBodyError,
    UnsupportedBodyError,
)
from service.http.disconnect import progress_of
from service.http.traffic import Traffic
from service.observability.request_record import record_of
from service.settings import Settings

__all__ = ["FORM", "BodyLimits", "LimitBodies", "media_type", "read_body", "read_files"]

FORM = "multipart/form-data"

# The Open Inference Protocol has compressed bodies; its routes limit what they decompress.
_COMPRESSED_PATHS = "/v2/"
# Fields of a form that are not files are not read; a few may come along.
_MAX_FIELDS = 64
# When to come back if there was no room for a body.
_RETRY_SECONDS = 1


def media_type(scope: Scope) -> str:
    """The content type in lower case without its parameters; empty if none was sent."""
    sent = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    return str(sent.partition(b";")[0].strip().lower().decode("latin-1"))


async def read_body(request: Request) -> bytes:
    """All of the body; what `Request.body` does, without a generator around each message."""
    chunks: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


async def read_files(request: Request, most: int) -> tuple[bytes, ...]:
    """The files of a form, under any field name, in the order sent: one to `most` of them."""
    async with aclosing(request.stream()) as stream:
        parser = _FormParser(request.headers, stream, max_files=most, max_fields=_MAX_FIELDS)
        form = await parser.read()
    try:
        files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
        items = [await file.read() for file in files]
    finally:
        await form.close()
    if not items:
        raise EmptyImageError(
            "the form has no file, expected at least one; with curl: -F image=@photo.jpg"
        )
    return tuple(items)


class _FormParser(MultiPartParser):
    """Starlette's parser of forms, which takes half a form for all of it."""

    # Files stay in memory, where `Traffic` counts them: no form needs a disk.
    spool_max_size = 0
    _ended = False

    def on_end(self) -> None:
        """The last boundary is here."""
        self._ended = True

    async def read(self) -> FormData:
        """All parts of the form; raises a `RequestError` if it cannot be read."""
        try:
            form = await self.parse()
        except MultiPartException as error:
            crowded = error.message.startswith("Too many")
            kind = OversizedBodyError if crowded else MalformedBodyError
            raise kind(f"the form cannot be read: {error.message}") from error
        except UnicodeError as error:
            # Some of Python's codecs raise this where Starlette expects a kind of it.
            raise MalformedBodyError(
                f"the form has names that its charset cannot read: {error}"
            ) from error
        if not self._ended:
            await form.close()
            raise MalformedBodyError("the form stops before its last boundary")
        return form


@dataclass(frozen=True)
class BodyLimits:
    """What a body may take."""

    max_bytes: int
    silence_timeout: float
    """How long no byte may come; also the head start before the rate counts."""
    bytes_per_second: float
    """The lowest rate of the whole body."""
    total_timeout: float
    """How long to wait for all of the body."""

    @classmethod
    def of(cls, settings: Settings) -> "BodyLimits":
        """The limits in force."""
        return cls(
            settings.max_body_bytes,
            settings.body_timeout_seconds,
            settings.min_body_rate,
            settings.body_total_seconds,
        )


class LimitBodies:
    """Middleware that counts and times what the application receives."""

    def __init__(self, app: ASGIApp, limits: BodyLimits, traffic: Traffic) -> None:
        self.app = app
        self.limits = limits
        self.traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Limit the body of a request; other messages pass."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _LimitedBody(scope, receive, self.limits, self.traffic)
        try:
            await self.app(scope, body.receive, send)
        finally:
            if body.held:
                body.release()


class _LimitedBody:
    """The body of one request as it arrives."""

    def __init__(
        self, scope: Scope, receive: Receive, limits: BodyLimits, traffic: Traffic
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._limits = limits
        self._traffic = traffic
        self.held = False
        """Whether some of it is here, and some is still to come."""
        self.deadline = 0.0
        """When the next bytes have to be here, on the clock of the event loop."""
        self._reader: asyncio.Task[object] | None = None
        self._error: LeafcodeError | None = None
        self._received = 0
        self._waited = 0.0
        self._complete = False
        self._begun = False

    async def receive(self) -> Message:
        """The next message; raises a `RequestError` when a limit is passed."""
        if self._complete:
            # What comes now is only the news that the client is gone, which may take long.
            return await self._receive()
        if not self._begun:
            # Before the first read: a client that asked "Expect: 100-continue" never sends.
            self._check_headers()
            self._begun = True
        progress = progress_of(self._scope)
        if progress is not None and progress.received:
            message = await self._receive()  # from memory, so that nothing can take long
        else:
            message = await self._timely()
            if progress is not None and progress.error is not None:
                raise progress.take_error()
        self._complete = not message.get("more_body", False)
        self._count(len(message.get("body", b"")))
        if not self._complete:
            self._hold()
        elif self.held:
            self.release()
        return message

    def release(self) -> None:
        """Hold no bytes any more: the body is complete, or nobody reads on."""
        self.held = False
        self._traffic.release(self)

    def give_up(self) -> None:
        """Reject the request, because there is no room for its body."""
        self.held = False
        self._end(
            OverloadedError(
                f"bodies under way and unread answers have {self._traffic.max_bytes} bytes, the "
                "most allowed, and this body had made no progress for the longest time",
                _RETRY_SECONDS,
            )
        )

    def _hold(self) -> None:
        self.held = True
        self._traffic.hold(self, self._received)
        if self._error is not None:
            raise self._take_error()

    def _take_error(self) -> LeafcodeError:
        """The error, which is not kept: it would keep its traceback, and that all of the body."""
        error, self._error = self._error, None
        assert error is not None  # noqa: S101
        return error

    def _end(self, error: LeafcodeError) -> None:
        """Have whoever reads the body, now or later, find an error."""
        self._error = error
        if self._reader is not None:
            self._reader.cancel()

    def _check_headers(self) -> None:
        for name, value in self._scope["headers"]:
            if name == b"content-length" and value.isdigit():
                self._check_size(int(value))
            elif name == b"content-encoding":
                self._check_encoding(value.strip().lower())

    def _check_encoding(self, encoding: bytes) -> None:
        decompressed_later = self._scope.get("path", "").startswith(_COMPRESSED_PATHS)
        if encoding not in (b"", b"identity") and not decompressed_later:
            # So that no body can be larger than it looks.
            raise UnsupportedBodyError("the body has a Content-Encoding, expected none")

    async def _timely(self) -> Message:
        if self._error is not None:
            raise self._take_error()
        loop, timeout = asyncio.get_running_loop(), self._timeout()
        start = loop.time()
        self.deadline = start + timeout
        self._reader = reader = asyncio.current_task(loop)
        assert reader is not None  # noqa: S101
        # What `asyncio.timeout` does, at a fifth of its cost: most bodies are there already.
        timer = loop.call_later(timeout, self._on_timeout)
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            if self._error is None or reader.uncancel():
                raise
            raise self._take_error() from None
        finally:
            self._reader = None
            timer.cancel()
        self._waited += loop.time() - start
        return message

    def _timeout(self) -> float:
        """How long to wait for the next bytes."""
        limits = self._limits
        # Only waiting counts: what the service itself takes is not the client's fault.
        allowed = limits.silence_timeout + self._received / limits.bytes_per_second
        return min(limits.silence_timeout, min(allowed, limits.total_timeout) - self._waited)

    def _on_timeout(self) -> None:
        limits = self._limits
        self._end(
            SlowBodyError(
                f"the body came too slowly, {self._received} bytes so far; expected the next "
                f"within {limits.silence_timeout:g} s, {limits.bytes_per_second:g} bytes/s, "
                f"and all of it within {limits.total_timeout:g} s"
            )
        )

    def _count(self, size: int) -> None:
        self._received += size
        record = record_of(self._scope)
        if record is not None:
            record.bytes_in = self._received
        self._check_size(self._received)

    def _check_size(self, size: int) -> None:
        if size > self._limits.max_bytes:
            raise OversizedBodyError(
                f"the body has at least {size} bytes, expected at most {self._limits.max_bytes}"
            )
