"""`POST /v1/codes`: descriptors to sparse codes."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool

from service.bodies import media_type, parse_descriptors
from service.context import InContext
from service.engine import Codes, Manifest
from service.errors import MalformedBodyError, UnsupportedBodyError
from service.problems import documented
from service.repository import ModelKey
from service.schemas import CodeColumns, DescriptorsBody, ModelName, ModelRef, Version

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
    responses=documented(400, 404, 413, 415, 422, 503),
    openapi_extra=_BODY,
)
async def encode(
    request: Request, context: InContext, model: ModelName = None, version: Version = None
) -> Response:
    """Sparse codes of descriptors, by column."""
    _require_json(request)
    manifest = context.repository.find(model, version).manifest
    body = await request.body()
    if not body:
        raise MalformedBodyError('the body is empty, expected {"descriptors": [[128 numbers], …]}')
    # Both ends run off the event loop: a large request has millions of numbers.
    most = context.settings.max_descriptors
    descriptors = await run_in_threadpool(parse_descriptors, body, most)
    codes = await context.pool.encode(ModelKey.of(manifest), descriptors)
    return Response(await run_in_threadpool(_render, manifest, codes), media_type=_JSON)


def _require_json(request: Request) -> None:
    found = media_type(request.headers)
    if found != _JSON:
        raise UnsupportedBodyError(f"the content type is {found or 'missing'}, expected {_JSON}")


def _render(manifest: Manifest, codes: Codes) -> bytes:
    """JSON of `CodeColumns`; built without it, because checking every number costs as much."""
    return to_json(
        {
            "model": ModelRef.of(manifest),
            "n_atoms": manifest.config.n_atoms,
            "leaf_ids": codes.leaf_ids.tolist(),
            "atom_ids": codes.atom_ids.tolist(),
            "values": codes.values.tolist(),
        }
    )
