"""uvicorn's HTTP protocol with limits on the headers of a request.

uvicorn waits for headers for ever and takes as many as come. This is its protocol with a
time limit and a size limit on them; what it rejects is answered with a problem document
and the connection is closed. Bodies are limited in `body.py`, except what is left of one whose
request was answered early: that may not take longer than headers may.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.engine import LeafcodeError
from service.errors import InvalidRequestError, OversizedHeadersError, SlowHeadersError
from service.http.disconnect import RequestProgress
from service.http.problems import answer, describe, reason
from service.observability.metrics import Metrics

__all__ = ["HeaderLimits", "LimitedProtocol"]

logger = logging.getLogger(__name__)

_MAX_HEADERS = 100
# "100 Continue", which a client waits for before it sends its body.
_INTERIM = b"HTTP/1.1 1"


@dataclass(frozen=True)
class HeaderLimits:
    """What the request line and headers may take."""

    max_bytes: int
    timeout: float


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on headers."""

    def __init__(self, *, limits: HeaderLimits, metrics: Metrics, **rest: Any) -> None:
        super().__init__(**rest)
        self._limits = limits
        self._metrics = metrics
        self._timer: asyncio.TimerHandle | None = None
        self._in_headers = False
        self._head_bytes = 0
        self._chunk_bytes = 0
        self._mixed = False
        self._rejection: LeafcodeError | None = None
        self._progress: RequestProgress | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first request may take as long as any other to come."""
        super().connection_made(transport)
        self._in_headers = True
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request at work that its client is gone."""
        self._disarm()
        super().connection_lost(exc)
        if self._progress is not None:
            self._progress.leave()

    def data_received(self, data: bytes) -> None:
        """Parse, then look at what is still missing."""
        self._mixed = False
        self._chunk_bytes = len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_headers:
            # A single endless header is no header yet, so that only this sees it. Bytes
            # that came with the end of another request may be that one's.
            self._head_bytes += 0 if self._mixed else len(data)
            if self._head_bytes > self._limits.max_bytes:
                self._reject(self._oversized())
            elif self._timer is None:
                self._arm()
        elif self._between_requests() and self._timer is None:
            self._arm()

    def on_message_begin(self) -> None:
        """A request begins, maybe behind another one."""
        super().on_message_begin()
        # No timer yet: most headers come in one piece, and end in this call.
        self._in_headers, self._head_bytes = True, 0
        self._disarm()

    def on_headers_complete(self) -> None:
        """A request whose headers are in order starts."""
        self._check_headers()
        self._in_headers = False
        self._disarm()
        before, self._progress = self.cycle, RequestProgress(cast("Scope", self.scope))
        super().on_headers_complete()
        # The answer to HEAD has nothing that could follow its headers.
        if self.cycle is not None and self.cycle is not before and self.scope["method"] != "HEAD":
            self.cycle.transport = cast("asyncio.Transport", _JoinedWrites(self.transport))

    def on_message_complete(self) -> None:
        """A request ends; what follows it is another one's."""
        self._mixed = True
        if self._progress is not None:
            self._progress.received = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What the parser could not read, or what a callback rejected."""
        self._reject(self._rejection or InvalidRequestError(msg.rstrip(".").lower()))

    def _check_headers(self) -> None:
        """Reject more headers, or more bytes of them, than allowed."""
        if len(self.headers) > _MAX_HEADERS:
            self._rejection = OversizedHeadersError(
                f"the request has more than {_MAX_HEADERS} headers, the most allowed"
            )
            raise self._rejection
        # Counted only if more than that came in all: most requests are small, body included.
        if self._head_bytes + self._chunk_bytes <= self._limits.max_bytes:
            return
        size = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if size > self._limits.max_bytes:
            self._rejection = self._oversized()
            raise self._rejection

    def _oversized(self) -> OversizedHeadersError:
        return OversizedHeadersError(
            f"the headers have more than {self._limits.max_bytes} bytes, the most allowed"
        )

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _arm(self) -> None:
        self._disarm()
        self._timer = self.loop.call_later(self._limits.timeout, self._on_timeout)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        if self.transport.is_closing():
            return
        if not self._between_requests():
            # Headers behind a request at work: an answer now would be taken for its own.
            self._arm()
        elif self._in_headers:
            self._reject(
                SlowHeadersError(f"the headers did not come within {self._limits.timeout:g} s")
            )
        else:
            self.transport.close()

    def _reject(self, error: LeafcodeError) -> None:
        """Answer by hand, because there is no request yet; then hang up."""
        problem = describe(error)
        fields = {"reason": reason(problem), "status": problem.status}
        logger.info("a connection was rejected: %s", error, extra={"fields": fields})
        self._metrics.count_rejected_connection(reason(problem), problem.status)
        response = answer(problem, {"Connection": "close"})
        head = [STATUS_LINE[problem.status]]
        head += [name + b": " + value + b"\r\n" for name, value in response.raw_headers]
        self.transport.write(b"".join([*head, b"\r\n", bytes(response.body)]))
        self.transport.close()


class _JoinedWrites:
    """What uvicorn writes to for one answer: its headers wait for the first bytes behind them.

    Written apart they are two system calls, two packets and two wake-ups of the client.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._begun = False

    def write(self, data: bytes) -> None:
        """Keep the headers; write everything else, behind them if they wait."""
        if self._begun or data.startswith(_INTERIM):
            head, self._head = self._head, b""
            self._transport.write(head + data if head else data)
        else:
            self._head, self._begun = data, True

    def is_closing(self) -> bool:
        """Whether the connection ends."""
        return self._transport.is_closing()

    def close(self) -> None:
        """End the connection once all is written."""
        if self._head:
            self._transport.write(self._head)
        self._transport.close()
