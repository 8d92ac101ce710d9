"""What one request cost: the one place that routes report to.

A route calls `observe` when it knows the model, and again with the timings of its jobs.
The middleware turns the record into the `Server-Timing` header, the metrics and the log
line, so that the three cannot tell different stories.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from starlette.types import Scope

from service.engine import Manifest
from service.pool.job import Timings

__all__ = ["CLIENT_GONE", "RequestRecord", "observe", "open_record", "record_of"]

CLIENT_GONE = 499
"""The status of a request whose client left before there was an answer, as nginx has it."""

_KEY = "record"


@dataclass(slots=True)
class RequestRecord:
    """One request, from its first byte to its last."""

    request_id: str
    bytes_in: int = 0
    bytes_out: int = 0
    status: int = 0
    reason: str = ""
    """Why it was rejected, by the last part of the problem's type; empty if it was not."""
    trace_id: str = ""
    model: Manifest | None = None
    jobs: list[Timings] = field(default_factory=list)
    observed: int = 0
    """When the last jobs were reported, in nanoseconds since 1970."""

    # What is known at the end.
    method: str = ""
    path: str = ""
    route: str = ""
    """The template of the route that answered."""
    seconds: float = 0.0
    """From the headers of the request to the end of its answer."""
    ended: float = 0.0
    """When it ended, in seconds since 1970."""

    def stages(self) -> Mapping[str, float]:
        """Seconds by stage.

        The images of one request wait side by side, but each takes its own time of a core: the
        longest wait in the queue counts, and the sums of the other stages.
        """
        if not self.jobs:
            return {}
        seconds = {"queue": self.jobs[0].queue, **self.jobs[0].stages}
        for job in self.jobs[1:]:
            seconds["queue"] = max(seconds["queue"], job.queue)
            for stage, value in job.stages.items():
                seconds[stage] = seconds.get(stage, 0.0) + value
        return seconds

    def milliseconds(self) -> dict[str, float]:
        """Time by stage, and in all, once the request has ended."""
        seconds = {**self.stages(), "total": self.seconds}
        return {stage: round(value * 1e3, 3) for stage, value in seconds.items()}

    def server_timing(self, total: float) -> bytes:
        """Time by stage, and in all so far, as the value of the header `Server-Timing`."""
        stages = self.stages()
        milliseconds = [1e3 * value for value in (*stages.values(), total)]
        return (_timing_form((*stages, "total")) % tuple(milliseconds)).encode()


@lru_cache
def _timing_form(stages: tuple[str, ...]) -> str:
    """A `Server-Timing` with room for the milliseconds of these stages."""
    return ", ".join([f"{stage};dur=%.3f" for stage in stages])


def observe(scope: Scope, model: Manifest, *jobs: Timings) -> None:
    """Report the model of a request, and the timings of its jobs when they are done."""
    record = record_of(scope)
    if record is not None:
        record.model = model
        if jobs:
            record.jobs.extend(jobs)
            record.observed = time.time_ns()


def record_of(scope: Scope) -> RequestRecord | None:
    """The record of a request; none outside of the middleware."""
    record = scope.get("state", {}).get(_KEY)
    return record if isinstance(record, RequestRecord) else None


def open_record(scope: Scope, request_id: str) -> RequestRecord:
    """A new record, for all that handle this request."""
    record = RequestRecord(request_id)
    scope.setdefault("state", {}).update({_KEY: record, "request_id": request_id})
    return record
