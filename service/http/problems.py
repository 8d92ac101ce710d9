"""One table from error types to HTTP, and every error as a problem document.

RFC 9457, with the extra member `error` that clients of the Open Inference Protocol
read. Errors of the framework (no such route, wrong method, wrong parameter) take the
same shape, so that a client needs one way to read errors.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import Scope

from service import errors
from service.engine import (
    BrokenImageError,
    DescriptorError,
    EmptyImageError,
    LeafcodeError,
    OversizedImageError,
    UnsupportedImageError,
)
from service.observability.request_record import tally_of
from service.routes.schemas import Problem

__all__ = [
    "REASONS",
    "answer",
    "describe",
    "documented",
    "examples_of",
    "install_handlers",
    "reason",
    "refuse",
    "unexpected",
]

_MEDIA_TYPE = "application/problem+json"
_UNTYPED = "about:blank"
_QUOTED_LENGTH = 80
_EXAMPLE_ID = "7f1c4b0d6b0f4f0c9f1f6f0f1c2d3e4f"
# How long whoever finds the service starting or stopping should wait.
_START_SECONDS = 1


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
    errors.MalformedBodyError: _Kind(400, "malformed-body", "Malformed body"),
    errors.InvalidBodyError: _Kind(422, "invalid-body", "Unusable body"),
    errors.OversizedBodyError: _Kind(413, "oversized-body", "Body too large"),
    errors.UnsupportedBodyError: _Kind(415, "unsupported-body", "Unsupported content type"),
    errors.NotAcceptableError: _Kind(406, "not-acceptable", "Not acceptable"),
    errors.SlowBodyError: _Kind(408, "slow-body", "Body too slow"),
    errors.SlowHeadersError: _Kind(408, "slow-headers", "Headers too slow"),
    errors.OversizedHeadersError: _Kind(431, "oversized-headers", "Headers too large"),
    errors.InvalidRequestError: _Kind(400, "invalid-request", "Not an HTTP request"),
    errors.UnauthorizedError: _Kind(401, "unauthorized", "Key required"),
    errors.UnknownModelError: _Kind(404, "unknown-model", "Unknown model"),
    errors.NotReadyError: _Kind(503, "not-ready", "Not ready"),
    errors.OverloadedError: _Kind(429, "overloaded", "Too many requests"),
    errors.WorkerLostError: _Kind(503, "worker-lost", "Worker lost"),
    errors.DeadlineError: _Kind(504, "deadline", "Deadline exceeded"),
    RequestValidationError: _Kind(422, "invalid-parameter", "Unusable parameter"),
    Exception: _Kind(500, "internal", "Internal error"),
}


REASONS = ("client-gone", *(kind.slug for kind in _TABLE.values()))
"""Why requests are refused, in one word each; metrics start all of them at zero."""


def describe(error: Exception, detail: str | None = None, instance: str | None = None) -> Problem:
    """The problem document of an error; its message is the detail unless one is given."""
    kind = next(_TABLE[cls] for cls in type(error).__mro__ if cls in _TABLE)
    return _problem(kind, str(error) if detail is None else detail, instance)


def _problem(kind: _Kind, detail: str, instance: str | None) -> Problem:
    return Problem(
        type=f"urn:leafcode:problem:{kind.slug}",
        title=kind.title,
        status=kind.status,
        detail=detail,
        instance=instance,
        error=detail,
    )


def answer(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """A problem document as an HTTP answer."""
    body = problem.model_dump_json(exclude_none=True)
    return Response(body, problem.status, headers, _MEDIA_TYPE)


def refuse(scope: Scope, error: LeafcodeError) -> Response:
    """The answer to an error of one request, which its tally remembers."""
    tally = tally_of(scope)
    problem = describe(error, instance=tally.request_id if tally else None)
    return _refusal(scope, problem, _headers(error))


def unexpected(error: Exception, instance: str) -> Response:
    """The answer to a bug: the log knows the rest, under the same request id."""
    detail = f"the service failed unexpectedly; its log tells more under request id {instance}"
    return answer(describe(error, detail, instance))


def install_handlers(app: FastAPI) -> None:
    """Answer every expected error with a problem document."""
    app.add_exception_handler(LeafcodeError, _on_leafcode_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)
    app.add_exception_handler(HTTPException, _on_http_error)


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


async def _on_leafcode_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LeafcodeError)  # noqa: S101
    return refuse(request.scope, error)


def _headers(error: LeafcodeError) -> dict[str, str]:
    """What some errors tell beside their document."""
    match error:
        case errors.OverloadedError():
            return {"Retry-After": str(error.retry_after)}
        case errors.NotReadyError():
            return {"Retry-After": str(_START_SECONDS)}
        case errors.UnauthorizedError():
            return {"WWW-Authenticate": 'Bearer realm="leafcode"'}
        case errors.SlowBodyError():
            # The rest of the body may still come, and nobody would read it.
            return {"Connection": "close"}
        case _:
            return {}


async def _on_invalid_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    # A parameter that may be left out is told twice: what it should be, and that it may be None.
    wrong = [item for item in error.errors() if item["type"] != "none_required"]
    detail = "; ".join(map(_sentence, wrong))
    return _refusal(request.scope, describe(error, detail, request.state.request_id))


def _refusal(scope: Scope, problem: Problem, headers: dict[str, str] | None = None) -> Response:
    tally = tally_of(scope)
    if tally is not None:
        tally.reason = reason(problem)
    return answer(problem, headers)


def reason(problem: Problem) -> str:
    """One word for metrics: the last part of the type, or the status if there is none."""
    if problem.type == _UNTYPED:
        return problem.title.lower().replace(" ", "-")
    return problem.type.rpartition(":")[2]


def _sentence(item: dict[str, Any]) -> str:
    where, name = item["loc"][:2]  # behind them is the branch of a union
    found = repr(item.get("input"))[:_QUOTED_LENGTH]
    return f"{where} parameter {name} is {found}: {item['msg'][:1].lower()}{item['msg'][1:]}"


async def _on_http_error(request: Request, error: Exception) -> Response:
    """What the framework refuses before a route runs."""
    assert isinstance(error, HTTPException)  # noqa: S101
    headers = dict(error.headers or {})
    detail = _http_detail(request, error, headers)
    problem = Problem(
        type=_UNTYPED,
        title=HTTPStatus(error.status_code).phrase,
        status=error.status_code,
        detail=detail,
        instance=request.state.request_id,
        error=detail,
    )
    return _refusal(request.scope, problem, headers)


def _http_detail(request: Request, error: HTTPException, headers: dict[str, str]) -> str:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return f"nothing is served at {request.url.path[:_QUOTED_LENGTH]}; /docs lists what is"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        expected = headers.get("Allow", "another method")
        return f"{request.method} is not served at {request.url.path}, expected {expected}"
    return str(error.detail)
