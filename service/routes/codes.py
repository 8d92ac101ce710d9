"""`POST /v1/codes`: descriptors to sparse codes."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.bodies import media_type
from service.context import context_of
from service.deadlines import TimeoutMs, seconds, while_connected
from service.errors import MalformedBodyError, UnsupportedBodyError
from service.problems import documented
from service.repository import ModelKey
from service.schemas import CodeColumns, DescriptorsBody, ModelName, Version
from service.tally import observe

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["codes"])

_JSON = "application/json"
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {_JSON: {"schema": DescriptorsBody.model_json_schema()}},
    }
}


@router.post(
    "/codes",
    summary="Sparse codes of descriptors",
    response_model=CodeColumns,
    responses=documented(400, 404, 413, 415, 422, 429, 503, 504),
    openapi_extra=_BODY,
)
async def encode(
    request: Request,
    model: ModelName = None,
    version: Version = None,
    timeout_ms: TimeoutMs = None,
) -> Response:
    """Sparse codes of descriptors, by column."""
    context = await context_of(request)
    _require_json(request)
    manifest = context.repository.find(model, version).manifest
    observe(request, manifest)
    body = await request.body()
    if not body:
        raise MalformedBodyError('the body is empty, expected {"descriptors": [[128 numbers], …]}')
    # Both ends run in the worker: a large request has millions of numbers.
    work = context.pool.encode_json(ModelKey.of(manifest), body, seconds(timeout_ms))
    codes = await while_connected(request, context, work)
    observe(request, manifest, codes.timings)
    return Response(codes.value, media_type=_JSON)


def _require_json(request: Request) -> None:
    found = media_type(request.headers)
    if found != _JSON:
        raise UnsupportedBodyError(f"the content type is {found or 'missing'}, expected {_JSON}")
