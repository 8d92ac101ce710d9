"""Parameters of the direct routes: read from the request, checked, and told to OpenAPI.

A parameter model's fields say where they come from (`query`, `path` or `header`). Clients
send the same few parameters again and again, so that what was read once is kept. A query
parameter that a call does not know is rejected, here and on FastAPI's routes: it is a typing
mistake, and ignored it would change the answer without a word.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.types import Scope

from service.errors import InvalidParameterError
from service.http.problems import invalid_parameters

__all__ = [
    "ClassifyParameters",
    "CodesParameters",
    "ExplainParameters",
    "InferParameters",
    "InferVersionParameters",
    "Parameters",
    "check_query",
    "openapi_parameters",
    "read_parameters",
]

# So that hostile queries do not fill the memory.
_MAX_KEPT_BYTES = 256
_MAX_KEPT = 1_000
# More than any deadline; a number without end could not be turned into seconds.
_MAX_TIMEOUT_MS = 10**9
_QUOTED_LENGTH = 80

_Kind = TypeVar("_Kind", bound="Parameters")


def _from(where: str) -> Any:
    return {"json_schema_extra": {"in": where}}


class Parameters(BaseModel):
    """What every direct route takes."""

    model_config = ConfigDict(frozen=True)

    timeout_ms: Annotated[int, Field(ge=1, le=_MAX_TIMEOUT_MS)] | SkipJsonSchema[None] = Field(
        None,
        alias="X-Timeout-Ms",
        description="Answer 504 after so many milliseconds, if the service's own limit is later.",
        **_from("header"),
    )

    @property
    def timeout(self) -> float | None:
        """The timeout in seconds, the pool's unit."""
        return None if self.timeout_ms is None else self.timeout_ms / 1e3


class CodesParameters(Parameters):
    """Parameters of `POST /v1/codes`."""

    model: str | SkipJsonSchema[None] = Field(
        None, description="Name of the model; the default one unless given.", **_from("query")
    )
    version: Annotated[int, Field(ge=0)] | SkipJsonSchema[None] = Field(
        None, description="Version of the model; the highest unless given.", **_from("query")
    )


class ClassifyParameters(CodesParameters):
    """Parameters of `POST /v1/classify`."""

    top_k: int = Field(
        5,
        ge=1,
        description="How many labels to answer; never more than the model has.",
        **_from("query"),
    )
    explain: bool = Field(
        default=False,
        description="Whether to add where the score of the best label comes from.",
        **_from("query"),
    )


class ExplainParameters(CodesParameters):
    """Parameters of `POST /v1/explain`."""

    label: str | SkipJsonSchema[None] = Field(
        None, description="Label to explain; the best one unless given.", **_from("query")
    )
    against: str | SkipJsonSchema[None] = Field(
        None,
        description="Label to compare it with: the difference of the two scores is explained.",
        **_from("query"),
    )


_ModelPath = Annotated[str, Field(description="Name of the model.", **_from("path"))]
_VersionPath = Annotated[int, Field(ge=0, description="Version of the model.", **_from("path"))]


class InferParameters(Parameters):
    """Parameters of `POST /v2/models/{name}/infer`."""

    name: _ModelPath
    header_length: str | SkipJsonSchema[None] = Field(
        None,
        alias="Inference-Header-Content-Length",
        description="Where the JSON ends and tensors begin; 0 says that the body is an image.",
        **_from("header"),
    )


class InferVersionParameters(InferParameters):
    """Parameters of `POST /v2/models/{name}/versions/{version}/infer`."""

    version: _VersionPath


def read_parameters(kind: type[_Kind], scope: Scope) -> _Kind:
    """The parameters of a request; raises `InvalidParameterError`."""
    query: bytes = scope["query_string"]
    path = tuple(scope.get("path_params", {}).items())
    wanted = _headers_of(kind)
    headers = tuple([item for item in scope["headers"] if item[0] in wanted])
    size = len(query) + sum([len(value) for _, value in (*path, *headers)])
    read = _read_and_keep if size <= _MAX_KEPT_BYTES else _read
    return cast(_Kind, read(kind, query, path, headers))


def _read(
    kind: type[_Kind],
    query: bytes,
    path: tuple[tuple[str, str], ...],
    headers: tuple[tuple[bytes, bytes], ...],
) -> _Kind:
    names = _headers_of(kind)
    # Of equal names in a query the last one counts, of headers the first.
    values = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    parameters = openapi_parameters(kind)
    _check_names(values, [item["name"] for item in parameters if item["in"] == "query"])
    values |= {names[name]: value.decode("latin-1") for name, value in reversed(headers)}
    values |= dict(path)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        found = [
            {**item, "loc": (_where(kind, str(item["loc"][0])), *item["loc"])}
            for item in error.errors()
        ]
        raise invalid_parameters(found) from error


_read_and_keep = lru_cache(_MAX_KEPT)(_read)


async def check_query(request: Request) -> None:
    """A dependency of FastAPI's routes: raise `InvalidParameterError` at an unknown name."""
    route = request.scope["route"]
    # A page for people may be linked to with the parameters of whoever placed the link.
    if route.include_in_schema:
        _check_names(request.query_params, [item.alias for item in route.dependant.query_params])


def _check_names(names: Iterable[str], known: Sequence[str]) -> None:
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        *others, last = known or ["none"]
        expected = f"{', '.join(others)} or {last}" if others else last
        raise InvalidParameterError(
            f"query parameter {unknown[:_QUOTED_LENGTH]!r} is unknown, expected {expected}"
        )


@lru_cache
def _headers_of(kind: type[Parameters]) -> Mapping[bytes, str]:
    """The names of its header parameters by their names in ASGI."""
    names = [str(parameter["name"]) for parameter in openapi_parameters(kind)]
    return {name.lower().encode(): name for name in names if _where(kind, name) == "header"}


def _where(kind: type[Parameters], name: str) -> str:
    """Which part of a request has the parameter; empty if it is unknown."""
    found = (str(item["in"]) for item in openapi_parameters(kind) if item["name"] == name)
    return next(found, "")


@lru_cache
def openapi_parameters(kind: type[Parameters]) -> list[dict[str, Any]]:
    """The parameters of a model as OpenAPI has them."""
    schema = kind.model_json_schema()
    return [
        {
            "name": name,
            "in": member["in"],
            "required": name in schema.get("required", ()),
            "description": member["description"],
            "schema": {key: member[key] for key in member if key not in ("in", "description")},
        }
        for name, member in schema["properties"].items()
    ]
