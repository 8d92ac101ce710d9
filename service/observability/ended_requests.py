"""Requests that have ended: counted in the metrics and written to the log, some at a time.

Between two requests a worker on the same core fills the processor's caches with other
things. What is done for thirty requests in a row takes a fraction of thirty times what it
takes for one alone.
"""

import asyncio
import logging
from urllib.parse import quote

from service.observability.metrics import Metrics
from service.observability.request_record import CLIENT_GONE, RequestRecord

__all__ = ["EndedRequests"]

logger = logging.getLogger(__name__)

# How long a request may wait for others, and how many may wait.
_KEPT_SECONDS = 0.1
_MAX_KEPT = 200

_LINE = "%s %s %s %.1f ms id=%s"


class EndedRequests:
    """Keeps the records of ended requests for a moment, then counts and logs them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._kept: list[RequestRecord] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, record: RequestRecord) -> None:
        """Take a record that does not change any more."""
        self._kept.append(record)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self.flush)
        elif len(self._kept) >= _MAX_KEPT:
            self.flush()

    def flush(self) -> None:
        """Count and log what is kept."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kept, self._kept = self._kept, []
        self._metrics.count(kept)
        if kept and logger.isEnabledFor(logging.INFO):
            for record in kept:
                _log(record)
            for handler in logging.getLogger().handlers:
                handler.flush()


def _log(record: RequestRecord) -> None:
    # The path arrives decoded; quoted again, a line feed in it cannot forge a log line.
    path = record.route if record.path == record.route else quote(record.path)
    fields: dict[str, object] = {
        "request_id": record.request_id,
        "method": record.method,
        "path": path,
        "route": record.route,
        "status": record.status,
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
        "ms": record.milliseconds(),
    }
    if record.model is not None:
        fields |= {"model": record.model.name, "model_version": record.model.version}
    if record.reason:
        fields["reason"] = record.reason
    if record.trace_id:
        fields["trace_id"] = record.trace_id
    outcome = "went away" if record.status == CLIENT_GONE else record.status
    arguments = (record.method, path, outcome, record.seconds * 1e3, record.request_id)
    # Not `logger.info`, which looks for its caller and takes the time of now.
    line = logger.makeRecord(
        logger.name, logging.INFO, "", 0, _LINE, arguments, None, extra={"fields": fields}
    )
    line.created, line.msecs = record.ended, record.ended % 1 * 1e3
    logger.handle(line)
