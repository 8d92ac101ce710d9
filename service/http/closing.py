"""uvicorn's HTTP protocol with a better end: clients see their answers, or are disconnected.

uvicorn closes a connection right behind its last answer. If the client is still sending then,
the system resets the connection, and the client may never see why it was rejected. So what
still comes is read and discarded for a while before the connection is closed. An answer that
its client does not read is given up after a while: uvicorn would keep it for good.
"""

import asyncio
import logging
import socket
import struct
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.observability.metrics import Metrics
from service.settings import Settings

__all__ = ["UNREAD", "CloseLimits", "ClosingProtocol"]

logger = logging.getLogger(__name__)

# A client that was told that its body is too large may be far beyond the limit by then. To
# discard so much takes a tenth of a second of the event loop.
_DRAIN_BYTES = 100_000_000
# Close by a reset: what the system holds of an answer is discarded, too.
_RESET = struct.pack("ii", 1, 0)

UNREAD = "unread-answer"
"""The reason under which metrics count answers that were given up."""


@dataclass(frozen=True)
class CloseLimits:
    """What clients may take at the end of a connection."""

    drain_bytes: int
    """Most bytes that are read and discarded behind the last answer."""
    drain_timeout: float
    """Longest time for that."""
    write_timeout: float
    """How long a client may read nothing of its answer."""

    @classmethod
    def of(cls, settings: Settings) -> "CloseLimits":
        """The limits in force."""
        return cls(_DRAIN_BYTES, settings.header_timeout_seconds, settings.write_timeout_seconds)


class ClosingProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a patient, but bounded end of its connections."""

    def __init__(self, *, close_limits: CloseLimits, metrics: Metrics, **rest: Any) -> None:
        super().__init__(**rest)
        self._close_limits = close_limits
        self._metrics = metrics
        self._deaf = False
        """Whether bytes that come are discarded; nothing is parsed any more."""
        self._drained: int | None = None
        """Bytes that came behind the last answer; None before it."""
        self._drain_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        """Bytes of answers that the system did not take when this was last looked at."""
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Have `pause_writing` called as soon as the system does not take all of an answer."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        super().connection_lost(exc)
        self._stop_watching()
        if self._drain_timer is not None:
            self._drain_timer.cancel()

    def finish(self, *, expecting: bool) -> None:
        """Close behind what was written; if the client may still be sending, discard that first."""
        if self._drained is not None or self.transport.is_closing():
            return
        if not expecting:
            self.transport.close()
            return
        self._unset_keepalive_if_required()
        self._deaf, self._drained = True, 0
        self.transport.write_eof()
        self.flow.resume_reading()
        limits = self._close_limits
        self._drain_timer = self.loop.call_later(limits.drain_timeout, self.transport.abort)

    def discard(self, data: bytes) -> None:
        """Drop what comes behind the last answer, up to the limit."""
        if self._drained is not None:
            self._drained += len(data)
            if self._drained > self._close_limits.drain_bytes:
                self.transport.abort()

    def on_response_complete(self) -> None:
        """Go on to the next request, unless this was the last answer."""
        if self._drained is None:
            super().on_response_complete()

    def pause_writing(self) -> None:
        """Give the client some time to read its answer."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """The client has read its answer, or the system has taken the rest of it."""
        super().resume_writing()
        self._stop_watching()

    def _watch(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        timeout = self._close_limits.write_timeout
        self._write_timer = self.loop.call_later(timeout, self._check_reading)

    def _stop_watching(self) -> None:
        self._unsent = 0
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _check_reading(self) -> None:
        """Give the answer up unless the client has read some of it meanwhile."""
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch()
            return
        timeout, fields = self._close_limits.write_timeout, {"reason": UNREAD}
        logger.info(
            "an answer was given up: its client read nothing for %g s, %d bytes were left",
            timeout,
            self._unsent,
            extra={"fields": fields},
        )
        self._metrics.count_closed_connection(UNREAD)
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()
