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

from service.http.traffic import UNREAD, Traffic
from service.observability.metrics import Metrics
from service.settings import Settings

__all__ = ["CloseLimits", "ClosingProtocol"]

logger = logging.getLogger(__name__)

# A client that was told that its body is too large may be far beyond the limit by then. To
# discard so much takes a tenth of a second of the event loop.
_DRAIN_BYTES = 100_000_000
# Close by a reset: what the system holds of an answer is discarded, too.
_RESET = struct.pack("ii", 1, 0)
# How long a connection whose rest is over stays open, for bytes that are there to be read.
_READ_SECONDS = 0.05


@dataclass(frozen=True)
class CloseLimits:
    """What clients may take at the end of a connection."""

    drain_bytes: int
    """Most bytes that are read and discarded behind the last answer."""
    drain_timeout: float
    """Longest time for that."""
    write_timeout: float
    """How long a client may read nothing of its answer."""
    read_rate: float
    """The lowest rate, in bytes a second, at which it may read one."""

    @classmethod
    def of(cls, settings: Settings) -> "CloseLimits":
        """The limits in force."""
        return cls(
            _DRAIN_BYTES,
            settings.header_timeout_seconds,
            settings.write_timeout_seconds,
            settings.min_body_rate,
        )


class ClosingProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a patient, but bounded end of its connections."""

    def __init__(
        self, *, close_limits: CloseLimits, traffic: Traffic, metrics: Metrics, **rest: Any
    ) -> None:
        super().__init__(**rest)
        self._close_limits = close_limits
        self._traffic = traffic
        self._metrics = metrics
        self._deaf = False
        """Whether bytes that come are discarded; nothing is parsed any more."""
        self._drained: int | None = None
        """Bytes that came behind the last answer; None before it."""
        self._drain_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        """Bytes of answers that the system did not take when this was last looked at."""
        self._ahead = 0
        """Bytes of requests that wait for the answers to earlier ones."""
        self.deadline = 0.0
        """When something has to move on, on the clock of the event loop."""
        self._write_timer: asyncio.TimerHandle | None = None
        self._resting_since: float | None = None
        """When the last answer was complete, unless something came since; on the same clock."""
        self._overdue: float | None = None
        """The start of a rest whose time is over: one last look for bytes, then it is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Have `pause_writing` called as soon as the system does not take all of an answer."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        self._ahead = 0
        self._stop_watching()
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._traffic.draining -= 1

    def finish(self, *, expecting: bool) -> None:
        """Close behind what was written; if the client may still be sending, discard that first."""
        if self._drained is not None or self.transport.is_closing():
            return
        if not expecting or not self._traffic.may_drain():
            self.transport.close()
            return
        self._unset_keepalive_if_required()
        self._deaf, self._drained = True, 0
        self._traffic.draining += 1
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
        self.server_state.total_requests += 1
        if self._drained is None and not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            else:
                self._rest()
        if self._ahead and not self.pipeline:
            self._ahead = 0
            self._hold()

    def _rest(self) -> None:
        """Wait for the next request; uvicorn sets a timer for each, here one serves for many."""
        self._resting_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._limit_rest(self.timeout_keep_alive)

    def _limit_rest(self, timeout: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            timeout, self.timeout_keep_alive_handler
        )

    def _unset_keepalive_if_required(self) -> None:
        """Something came: whenever the timer ends, it finds that out."""
        self._resting_since = None

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if no request has come for long enough.

        Not at once: an event loop that stalled runs its timers before it reads what came
        meanwhile, and would close the connection under a request.
        """
        self.timeout_keep_alive_task = None
        since, overdue = self._resting_since, self._overdue
        if since is None:
            return
        left = since + self.timeout_keep_alive - self.loop.time()
        if left <= 0 and overdue == since:
            super().timeout_keep_alive_handler()
            return
        self._overdue = since if left <= 0 else None
        self._limit_rest(max(left, _READ_SECONDS))

    def give_up(self) -> None:
        """Disconnect, because there is no room for answers that are not read."""
        if self._write_timer is not None:
            self._write_timer.cancel()
        fields = {"reason": UNREAD, "bytes": self._unsent}
        logger.info("a client was disconnected, it did not read", extra={"fields": fields})
        self._metrics.count_closed_connection(UNREAD)
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def hold_ahead(self, size: int) -> None:
        """Count bytes of requests that wait for the answers to earlier ones."""
        self._ahead += size
        if not self._unsent:
            self.deadline = self.loop.time() + self._close_limits.write_timeout
        self._hold()

    def _hold(self) -> None:
        size = self._unsent + self._ahead
        if size:
            self._traffic.hold(self, size)
        else:
            self._traffic.release(self)

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
        self.deadline = self.loop.time() + timeout
        self._write_timer = self.loop.call_later(timeout, self._check_reading)
        self._hold()

    def _stop_watching(self) -> None:
        self._unsent = 0
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self._hold()

    def _check_reading(self) -> None:
        """Disconnect unless the client has read enough meanwhile."""
        limits = self._close_limits
        left = self.transport.get_write_buffer_size()
        if self._unsent - left >= min(limits.read_rate * limits.write_timeout, self._unsent):
            self._watch()
        else:
            self.give_up()
