"""`GET /v1/models/…/dictionary`: the atoms that codes refer to, as a `.npy` file.

A version never changes, so that its digest is the entity tag: whoever keeps the file is
answered 304. The file is written by a worker, because only workers map the tensors.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response
from pydantic.json_schema import SkipJsonSchema

from service.http.entity_tags import names
from service.http.problems import documented
from service.observability.request_record import observe
from service.repository import Model, ModelKey
from service.routes.context import Context, context_of
from service.routes.models import PathName, PathVersion

__all__ = ["router"]

router = APIRouter(prefix="/v1/models", tags=["models"])

IfNoneMatch = Annotated[
    str | SkipJsonSchema[None], Header(description="Entity tags of files that you have.")
]

_MEDIA_TYPE = "application/x-npy"
_TAG = {"ETag": {"description": "Names this content.", "schema": {"type": "string"}}}
_FILE = {"type": "string", "format": "binary", "description": "(n_atoms, 128) float32."}
_DECLARATION: dict[str, Any] = {
    "response_class": Response,
    "responses": {
        200: {"content": {_MEDIA_TYPE: {"schema": _FILE}}, "headers": _TAG},
        304: {"description": "You have it", "headers": _TAG},
        **documented(404, 422, 429, 503, 504),
    },
}


@router.get("/{name}/dictionary", summary="Dictionary of a model", **_DECLARATION)
async def get_model_dictionary(
    request: Request, name: PathName, *, if_none_match: IfNoneMatch = None
) -> Response:
    """The atoms of the highest version: a descriptor is about `values @ dictionary[atom_ids]`."""
    context = context_of(request)
    return await _dictionary(request, context, context.repository.find(name), if_none_match)


@router.get(
    "/{name}/versions/{version}/dictionary", summary="Dictionary of a version", **_DECLARATION
)
async def get_model_version_dictionary(
    request: Request, name: PathName, version: PathVersion, *, if_none_match: IfNoneMatch = None
) -> Response:
    """The atoms of one version: a descriptor is about `values @ dictionary[atom_ids]`."""
    context = context_of(request)
    model = context.repository.find(name, version)
    return await _dictionary(request, context, model, if_none_match)


async def _dictionary(
    request: Request, context: Context, model: Model, if_none_match: str | None
) -> Response:
    manifest = model.manifest
    tag = f'"{manifest.digest}"'
    observe(request.scope, manifest)
    if if_none_match is not None and names(if_none_match, tag):
        return Response(status_code=304, headers={"ETag": tag})
    written = await context.pool.write_dictionary(ModelKey.of(manifest))
    observe(request.scope, manifest, written.timings)
    return Response(written.value, media_type=_MEDIA_TYPE, headers={"ETag": tag})
