"""uvicorn's HTTP protocol with limits on the headers of a request.

uvicorn waits for headers for ever and takes as many as come. This is its protocol with a
time limit and a size limit on them, and on the trailers of a chunked body; what it rejects is
answered with a problem document, behind the answers to what came before, and the connection is
closed. Bodies are limited in `body.py`, except what is left of one whose request was answered
early: that may not take longer than headers may.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from service.engine import LeafcodeError
from service.errors import (
    InvalidRequestError,
    NoConnectionError,
    OverloadedError,
    OversizedHeadersError,
    SlowHeadersError,
)
from service.http.closing import ClosingProtocol
from service.http.disconnect import RequestProgress
from service.http.problems import answer, describe, headers_of, reason
from service.http.traffic import EVICTED

__all__ = ["HeaderLimits", "LimitedProtocol"]

logger = logging.getLogger(__name__)

_MAX_HEADERS = 100
# Requests that one connection may send ahead; more of them could come in a single read.
_MAX_AHEAD = 100
# A client that has not heard yet that the service stops may send another request: it gets an
# answer for so long, which is less than the shortest time to stop in. Closing at once would
# break its connection, maybe under its request.
_LAST_SECONDS = 0.8
# Headers that say how the connection goes on, which uvicorn handles.
_SPECIAL = frozenset((b"connection", b"transfer-encoding"))
# What no header may have; beside them, line ends.
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\r\n"})

# "Upgrade: h2c", which a client may offer and a server may ignore. The parser cannot: it takes
# what follows for the other protocol, a body too. So the header is given another name; where it
# is written in another way, or comes late, the request is rejected.
_OFFER = b"pgrade:"
_OFFER_BYTES = 4_096


@dataclass(frozen=True)
class HeaderLimits:
    """What the request line and headers may take."""

    max_bytes: int
    timeout: float


class LimitedProtocol(ClosingProtocol):
    """uvicorn's HTTP protocol with limits on headers."""

    def __init__(self, *, limits: HeaderLimits, **rest: Any) -> None:
        super().__init__(**rest)
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._in_headers = False
        self._head_bytes = 0
        """Bytes of headers, or between the chunks of a body, in earlier reads."""
        self._chunk_bytes = 0
        self._mixed = False
        """Whether the last read had more than bytes of headers, or between chunks."""
        self._rejection: LeafcodeError | None = None
        self._stopping = False
        self._progress: RequestProgress | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first request may take as long as any other to come."""
        super().connection_made(transport)
        self._in_headers = True
        self._arm()
        if self._traffic.full() and not self._traffic.make_room(self):
            self._refuse()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request at work that its client is gone."""
        self._disarm()
        self._rejection = None  # it refers to this connection, where it was raised
        super().connection_lost(exc)
        if self._progress is not None:
            self._progress.leave()

    def data_received(self, data: bytes) -> None:
        """Parse, then look at what is still missing."""
        if self._deaf:
            self.discard(data)
            return
        self._mixed = False
        self._chunk_bytes = len(data)
        if (place := data.find(_OFFER, 0, _OFFER_BYTES)) >= 0:
            data = self._without_offer(data, place)
        super().data_received(data)
        if self._deaf or self.transport.is_closing():
            return
        # A single endless header, or trailer, is none yet, so that only this sees it. Bytes
        # that came with others may be those.
        self._head_bytes = 0 if self._mixed else self._head_bytes + len(data)
        if self.pipeline:
            self.hold_ahead(len(data))
        if self._head_bytes > self._limits.max_bytes:
            self._reject(self._oversized())
        elif self._timer is None and (self._in_headers or self._between_requests()):
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
        self._complete_scope()  # raises at a URL that cannot be read
        self._in_headers, self._head_bytes, self._mixed = False, 0, True
        self._disarm()
        self._progress = RequestProgress(cast("Scope", self.scope))
        lasting = self.scope["http_version"] != "1.0" and self.parser.should_keep_alive()
        before, self.cycle = (
            self.cycle,
            _Exchange(self, keep_alive=lasting and not self._stopping),
        )
        # The request has its headers; from here on uvicorn collects trailers, which nobody reads.
        self.headers = []
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            # The answers to earlier requests come first.
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _complete_scope(self) -> None:
        """Add what the request line says."""
        url, scope = httptools.parse_url(self.url), self.scope
        path = url.path.decode("ascii")
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = self.parser.get_http_version()
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""

    def on_body(self, body: bytes) -> None:
        """Some of a body; what uvicorn does, without a question about WebSockets."""
        self._mixed = True
        if self.cycle.response_complete:
            return
        self.cycle.body += body
        if len(self.cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        """A request ends; what follows it is another one's."""
        if self.headers:
            self._check_headers()
        self._mixed = True
        if self._progress is not None:
            self._progress.received = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Reject what could not be read, now that everything before it is answered."""
        super().on_response_complete()
        if self._rejection is not None and self._between_requests():
            self._answer(self._rejection)
        elif self._stopping:
            self.shutdown()

    def shutdown(self) -> None:
        """End the connection: after the request at work, or the next one if it comes soon."""
        self._stopping = True
        if not self._between_requests():
            # An answer that has begun has not told the client that it is the last.
            self.cycle.keep_alive = self.cycle.keep_alive and self.cycle.response_started
        elif self._awaits_request():
            self._disarm()
            self._unset_keepalive_if_required()
            self._timer = self.loop.call_later(_LAST_SECONDS, self._on_timeout)

    def send_400_response(self, msg: str) -> None:
        """What the parser could not read, or what a callback rejected."""
        self._reject(self._rejection or InvalidRequestError(msg.rstrip(".").lower()))

    def idle_since(self) -> float | None:
        """When the connection began to wait for a request; None if it does not."""
        busy = self._deaf or self._unsent or not self._between_requests()
        if busy or self.transport.is_closing():
            return None
        if self._resting_since is not None:
            return self._resting_since
        if self._in_headers and self._timer is not None:
            return self._timer.when() - self._limits.timeout
        return None

    def evict(self) -> None:
        """Close the connection, which waits for a request, to make room for another one."""
        self._metrics.count_closed_connection(EVICTED)
        self.transport.close()

    def _refuse(self) -> None:
        """No room for this connection: say so, unless too many are being told already."""
        if self._traffic.may_drain():
            most = self._traffic.max_connections
            self._reject(NoConnectionError(f"all {most} connections are in use, the most allowed"))
        else:
            self._metrics.count_closed_connection("no-connection")
            self.transport.abort()

    def expects_more(self) -> bool:
        """Whether the client is in the middle of a request."""
        return self._in_headers or self.cycle.more_body

    def _check_headers(self) -> None:
        """Reject more headers or trailers, or more bytes of them, than allowed, and tunnels."""
        if self.parser.should_upgrade():
            self._rejection = InvalidRequestError(
                "the request asks for another protocol, expected HTTP/1.1 without Upgrade"
            )
            raise self._rejection
        if len(self.headers) > _MAX_HEADERS:
            self._rejection = OversizedHeadersError(
                f"the request has more than {_MAX_HEADERS} headers, the most allowed"
            )
            raise self._rejection
        if len(self.pipeline) >= _MAX_AHEAD:
            self._rejection = OverloadedError(
                f"more than {_MAX_AHEAD} requests wait on this connection, the most allowed", 1
            )
            raise self._rejection
        # Counted only if more than that came in all: most requests are small, body included.
        if self._head_bytes + self._chunk_bytes <= self._limits.max_bytes:
            return
        size = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if size > self._limits.max_bytes:
            self._rejection = self._oversized()
            raise self._rejection

    def _without_offer(self, data: bytes, place: int) -> bytes:
        """The data with the `_OFFER` at `place` renamed, unless that is in a body."""
        in_body = self.cycle is not None and self.cycle.more_body
        if in_body or data.find(b"\r\n\r\n", 0, place) >= 0:
            return data
        return data[:place] + b"pgrade-ignored:" + data[place + len(_OFFER) :]

    def _oversized(self) -> OversizedHeadersError:
        return OversizedHeadersError(
            f"the headers have more than {self._limits.max_bytes} bytes, the most allowed"
        )

    def _awaits_request(self) -> bool:
        """Whether nothing of a request has come since the last answer."""
        return self._resting_since is not None or (self.cycle is None and self._head_bytes == 0)

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
        elif self._in_headers and not self._stopping:
            self._reject(
                SlowHeadersError(f"the headers did not come within {self._limits.timeout:g} s")
            )
        else:
            self.transport.close()

    def _reject(self, error: LeafcodeError) -> None:
        """Read no further; the answer goes behind those to earlier requests."""
        self._rejection, self._deaf = error, True
        self._disarm()
        self.flow.pause_reading()
        if self._in_headers:
            if self._between_requests():
                self._answer(error)
        elif self._between_requests():
            # The rest of a request that was answered before it was complete.
            self.finish(expecting=True)
        else:
            # The request that is at work: whoever reads its body will find out.
            self._rejection = None
            self.cycle.keep_alive = False
            if self._progress is not None:
                self._progress.error = error
            self.cycle.message_event.set()

    def _answer(self, error: LeafcodeError) -> None:
        """Answer by hand, because there is no request yet; then hang up."""
        if self.transport.is_closing():
            return
        problem = describe(error)
        fields = {"reason": reason(problem), "status": problem.status}
        logger.info("a connection was rejected: %s", error, extra={"fields": fields})
        self._metrics.count_rejected_connection(reason(problem), problem.status)
        response = answer(problem, {**headers_of(error), "Connection": "close"})
        head = [STATUS_LINE[problem.status]]
        head += [name + b": " + value + b"\r\n" for name, value in response.raw_headers]
        self.transport.write(b"".join([*head, b"\r\n", bytes(response.body)]))
        self.finish(expecting=True)


class _Exchange(RequestResponseCycle):
    """One request and its answer, which is written at once if its size is known.

    Headers and body apart are two system calls, two packets and two wake-ups of the client.
    """

    def __init__(self, protocol: LimitedProtocol, *, keep_alive: bool) -> None:
        super().__init__(
            scope=protocol.scope,
            transport=protocol.transport,
            flow=protocol.flow,
            logger=protocol.logger,
            access_logger=protocol.access_logger,
            access_log=False,
            default_headers=protocol.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=protocol.expect_100_continue,
            keep_alive=keep_alive,
            on_response=protocol.on_response_complete,
        )
        self._protocol = protocol
        self._start: Any = None

    async def send(self, message: Any) -> None:
        """Keep the headers until the body begins, then write both."""
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message
            return
        start, self._start = self._start, None
        if start is None:
            await super().send(message)
        elif whole := self._whole(start, message):
            self._write(whole)
        else:
            self.transport = cast("asyncio.Transport", _PatientTransport(self._protocol))
            await super().send(start)
            await super().send(message)

    def _whole(self, start: Any, message: Any) -> bytes:
        """The bytes of the answer; none if uvicorn has to write it, in pieces or not at all."""
        body, headers = message.get("body", b""), [*self.default_headers, *start["headers"]]
        if message.get("more_body") or (b"content-length", b"%d" % len(body)) not in headers:
            return b""
        if self.disconnected or self.flow.write_paused or self.scope["method"] == "HEAD":
            return b""
        lines = [b"%b: %b\r\n" % header for header in headers]
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        ends = head.count(b"\r"), head.count(b"\n")
        clean = ends == (len(lines), len(lines)) and head.translate(None, _CONTROLS) == head
        if not clean or not _SPECIAL.isdisjoint([name for name, _ in headers]):
            return b""
        return b"".join((STATUS_LINE[start["status"]], head, b"\r\n", body))

    def _write(self, answer: bytes) -> None:
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(answer)
        self.message_event.set()
        if not self.keep_alive:
            self._protocol.finish(expecting=self._protocol.expects_more())
        self.on_response()


class _PatientTransport:
    """What uvicorn writes other answers to; to close it waits for what the client still sends."""

    def __init__(self, protocol: LimitedProtocol) -> None:
        self._protocol = protocol
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing

    def close(self) -> None:
        """End the connection once all is written."""
        self._protocol.finish(expecting=self._protocol.expects_more())
