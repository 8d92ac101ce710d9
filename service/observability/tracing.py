"""Optional traces for OpenTelemetry: a span for each request, one below it for each stage.

FastAPI makes the span of the request, with its route and the caller's context; this
chooses where spans go and adds the stages, whose times come from the worker. Off, and
not even imported, unless an endpoint is set.
"""

from typing import TYPE_CHECKING, Any

from service import __version__
from service.errors import SettingsError
from service.observability.request_record import RequestRecord
from service.pool.job import Timings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

__all__ = ["Tracing"]

_OFF = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
# A stopping service waits for it once more, even if nobody is there.
_EXPORT_SECONDS = 2
_BILLION = 1_000_000_000


class Tracing:
    """Where spans go, if anywhere."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        self._provider = provider

    @classmethod
    def to(cls, endpoint: str) -> "Tracing":
        """To an OTLP endpoint over HTTP; nowhere if it is empty."""
        if not endpoint:
            return cls()
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
                OTLPSpanExporter,
            )
        except ImportError as error:
            raise SettingsError(
                "LEAFCODE_OTLP_ENDPOINT (--otlp-endpoint) is set, but OpenTelemetry is not "
                "installed; expected: pip install 'leafcode[otel]'"
            ) from error
        return cls.through(OTLPSpanExporter(endpoint, timeout=_EXPORT_SECONDS))

    @classmethod
    def through(cls, exporter: "SpanExporter") -> "Tracing":
        """Through an exporter, in batches."""
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        provider = TracerProvider(
            resource=Resource.create({"service.name": "leafcode", "service.version": __version__})
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return cls(provider)

    @property
    def active(self) -> bool:
        """Whether there are any traces."""
        return self._provider is not None

    @property
    def configuration(self) -> Any:
        """What FastAPI is told."""
        if self._provider is None:
            return _OFF
        return {
            **_OFF,
            "tracing": True,
            "operation_spans": False,
            "tracer_provider": self._provider,
        }

    def record(self, request: RequestRecord, name: str, route: str) -> str:
        """Name the span of a request and add its stages; the trace's id, empty without one."""
        if self._provider is None:
            return ""
        from opentelemetry.trace import format_trace_id, get_current_span  # noqa: PLC0415

        span = get_current_span()
        # FastAPI names the spans of its own routes so, and knows nothing of direct ones.
        span.update_name(name)
        span.set_attribute("http.route", route)
        if request.model is not None:
            span.set_attribute("leafcode.model.name", request.model.name)
            span.set_attribute("leafcode.model.version", request.model.version)
        tracer = self._provider.get_tracer("leafcode", __version__)
        for job in request.jobs:
            _record_stages(tracer, job, request.observed)
        return format_trace_id(span.get_span_context().trace_id)

    def stop(self) -> None:
        """Send what is left."""
        if self._provider is not None:
            self._provider.shutdown()


def _record_stages(tracer: "Tracer", job: Timings, end: int) -> None:
    """Spans of one job, laid end to end: the worker tells how long, not when."""
    moment = end - round((job.queue + job.worker) * _BILLION)
    for stage, seconds in {"queue": job.queue, **job.stages}.items():
        span = tracer.start_span(stage, start_time=moment)
        moment += round(seconds * _BILLION)
        span.end(moment)
