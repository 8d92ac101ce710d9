"""One table from error types to HTTP, and every error as a problem document.

RFC 9457, with the extra member `error` that clients of the Open Inference Protocol
read. Errors of the framework (no such route, wrong method, wrong parameter) take the
same shape, so that a client needs one way to read errors. `respond` is the one exit: what
a direct route raises comes here, what FastAPI catches, and what nobody expected.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import Scope

from service import errors
from service.engine import (
    BrokenImageError,
    DescriptorError,
    EmptyImageError,
    ImageError,
    LabelError,
    LeafcodeError,
    OversizedImageError,
    UnsupportedImageError,
)
from service.http.traffic import EVICTED, UNREAD
from service.observability.request_record import record_of

__all__ = [
    "REASONS",
    "Problem",
    "answer",
    "describe",
    "documented",
    "examples_of",
    "headers_of",
    "install_handlers",
    "invalid_parameters",
    "reason",
    "respond",
]

_MEDIA_TYPE = "application/problem+json"
_UNTYPED = "about:blank"
_QUOTED_LENGTH = 80
_EXAMPLE_ID = "7f1c4b0d6b0f4f0c9f1f6f0f1c2d3e4f"
# How long clients that find the service starting or stopping should wait.
_START_SECONDS = 1


class Problem(BaseModel):
    """What went wrong (RFC 9457). `error` repeats `detail` for inference protocol clients."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "urn:leafcode:problem:unsupported-image",
                "title": "Not an image",
                "status": 415,
                "detail": "the 5 bytes are not an image in a format that is read here, "
                "expected one of JPEG, PNG, WEBP, GIF, BMP, TIFF",
                "instance": _EXAMPLE_ID,
                "error": "the 5 bytes are not an image in a format that is read here, "
                "expected one of JPEG, PNG, WEBP, GIF, BMP, TIFF",
            }
        }
    )

    type: str = Field(description="Names the kind of problem; stable.")
    title: str = Field(description="The kind of problem in words.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="What was found and what was expected.")
    instance: str | None = Field(None, description="Request id, as in X-Request-Id and the log.")
    error: str = Field(description="The same as detail.")


@dataclass(frozen=True)
class _Kind:
    status: int
    slug: str
    title: str


_TABLE: dict[type[Exception], _Kind] = {
    EmptyImageError: _Kind(400, "no-image", "No image"),
    UnsupportedImageError: _Kind(415, "unsupported-image", "Not an image"),
    OversizedImageError: _Kind(413, "oversized-image", "Image too large"),
    BrokenImageError: _Kind(422, "broken-image", "Unusable image"),
    DescriptorError: _Kind(422, "invalid-descriptors", "Unusable descriptors"),
    LabelError: _Kind(404, "unknown-label", "Unknown label"),
    errors.MalformedBodyError: _Kind(400, "malformed-body", "Malformed body"),
    errors.InvalidBodyError: _Kind(422, "invalid-body", "Unusable body"),
    errors.OversizedBodyError: _Kind(413, "oversized-body", "Body too large"),
    errors.UnsupportedBodyError: _Kind(415, "unsupported-body", "Unsupported content type"),
    errors.NotAcceptableError: _Kind(406, "not-acceptable", "Not acceptable"),
    errors.SlowBodyError: _Kind(408, "slow-body", "Body too slow"),
    errors.SlowHeadersError: _Kind(408, "slow-headers", "Headers too slow"),
    errors.OversizedHeadersError: _Kind(431, "oversized-headers", "Headers too large"),
    errors.InvalidRequestError: _Kind(400, "invalid-request", "Not an HTTP request"),
    errors.InvalidParameterError: _Kind(422, "invalid-parameter", "Unusable parameter"),
    errors.UnauthorizedError: _Kind(401, "unauthorized", "Key required"),
    errors.UnknownModelError: _Kind(404, "unknown-model", "Unknown model"),
    errors.NotReadyError: _Kind(503, "not-ready", "Not ready"),
    errors.OverloadedError: _Kind(429, "overloaded", "Too many requests"),
    errors.NoConnectionError: _Kind(503, "no-connection", "Too many connections"),
    errors.WorkerLostError: _Kind(503, "worker-lost", "Worker lost"),
    errors.DeadlineError: _Kind(504, "deadline", "Deadline exceeded"),
    Exception: _Kind(500, "internal", "Internal error"),
}


REASONS = ("client-gone", EVICTED, UNREAD, *(kind.slug for kind in _TABLE.values()))
"""Why requests are rejected, in one word each; metrics start all of them at zero."""


def describe(error: Exception, instance: str | None = None) -> Problem:
    """The problem document of an error; an unexpected one does not show its message."""
    if isinstance(error, HTTPException):
        status = HTTPStatus(error.status_code)
        return _problem(_Kind(status, "", status.phrase), str(error.detail), instance)
    kind = next(_TABLE[cls] for cls in type(error).__mro__ if cls in _TABLE)
    detail = str(error)
    if not isinstance(error, LeafcodeError):
        detail = "the service failed unexpectedly; its log tells more"
        detail += f" under request id {instance}" if instance else ""
    return _problem(kind, detail, instance)


def _problem(kind: _Kind, detail: str, instance: str | None) -> Problem:
    return Problem(
        type=f"urn:leafcode:problem:{kind.slug}" if kind.slug else _UNTYPED,
        title=kind.title,
        status=kind.status,
        detail=detail,
        instance=instance,
        error=detail,
    )


def respond(scope: Scope, error: Exception) -> Response:
    """The answer to an error of one request, which its record remembers."""
    record = record_of(scope)
    if isinstance(error, RequestValidationError):
        error = invalid_parameters(error.errors())
    if isinstance(error, HTTPException):
        error.detail = _http_detail(scope, error)
    if isinstance(error, ImageError) and _is_by_curl(scope):
        error = type(error)(f"{error}; curl -d removes line ends, send it with --data-binary")
    problem = describe(error, record.request_id if record else None)
    if record is not None:
        record.reason = reason(problem)
    return answer(problem, headers_of(error))


def answer(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """A problem document as an HTTP answer."""
    body = problem.model_dump_json(exclude_none=True)
    return Response(body, problem.status, headers, _MEDIA_TYPE)


def install_handlers(app: FastAPI) -> None:
    """Have FastAPI answer every expected error with a problem document."""

    async def handle(request: Request, error: Exception) -> Response:
        return respond(request.scope, error)

    for kind in (LeafcodeError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Error answers of a route, for OpenAPI."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {_MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }


def examples_of(status: int) -> dict[str, dict[str, Any]]:
    """A problem document of every kind that is answered with a status, for OpenAPI."""
    return {
        kind.slug: {
            "summary": kind.title,
            "value": _problem(kind, cls.__doc__ or kind.title, _EXAMPLE_ID).model_dump(),
        }
        for cls, kind in _TABLE.items()
        if kind.status == status
    }


def reason(problem: Problem) -> str:
    """One word for metrics: the last part of the type, or the status if there is none."""
    if problem.type == _UNTYPED:
        return problem.title.lower().replace(" ", "-")
    return problem.type.rpartition(":")[2]


def invalid_parameters(found: Any) -> errors.InvalidParameterError:
    """The error of a request whose parameters pydantic rejects; `loc` is (where, name, …)."""
    # A parameter that may be left out is named twice: what it should be, and that it may be None.
    wrong = [item for item in found if item["type"] != "none_required"]
    return errors.InvalidParameterError("; ".join(map(_sentence, wrong)))


def _sentence(item: dict[str, Any]) -> str:
    where, name = item["loc"][:2]  # behind them is the branch of a union
    value = repr(item.get("input"))[:_QUOTED_LENGTH]
    return f"{where} parameter {name} is {value}: {item['msg'][:1].lower()}{item['msg'][1:]}"


def headers_of(error: Exception) -> dict[str, str]:
    """What some errors say beside their document."""
    match error:
        case HTTPException():
            return dict(error.headers or {})
        case errors.OverloadedError():
            return {"Retry-After": str(error.retry_after)}
        case errors.NotReadyError() | errors.NoConnectionError():
            return {"Retry-After": str(_START_SECONDS)}
        case errors.UnauthorizedError():
            return {"WWW-Authenticate": 'Bearer realm="leafcode"'}
        case errors.SlowBodyError():
            # The rest of the body may still come, and nobody would read it.
            return {"Connection": "close"}
        case _:
            return {}


def _is_by_curl(scope: Scope) -> bool:
    """Whether the body has the content type that curl sends with a body unless told otherwise."""
    return (b"content-type", b"application/x-www-form-urlencoded") in scope["headers"]


def _http_detail(scope: Scope, error: HTTPException) -> str:
    """What the framework rejects before a route runs."""
    method, path = scope["method"], scope["path"]
    if error.status_code == HTTPStatus.NOT_FOUND:
        return f"nothing is served at {path[:_QUOTED_LENGTH]}; /docs lists what is"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        expected = (error.headers or {}).get("Allow", "another method")
        return f"{method} is not served at {path}, expected {expected}"
    return str(error.detail)
