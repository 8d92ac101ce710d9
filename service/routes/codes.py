"""`POST /v1/codes`: descriptors, or an image, to sparse codes.

Reading the numbers and writing the codes happens in the worker: a large request has
millions of them. This module only finds out which form came and which one is wanted.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.errors import MalformedBodyError, UnsupportedBodyError
from service.formats.codes import CodeForms, Source, Target
from service.http.body import FORM, media_type, read_body, read_files
from service.http.disconnect import while_connected
from service.http.negotiation import choose_for
from service.http.problems import documented
from service.observability.request_record import observe
from service.repository import ModelKey
from service.routes.context import context_of
from service.routes.openapi import CODES_ANSWER, CODES_BODY
from service.routes.parameters import CodesParameters, openapi_parameters, read_parameters
from service.routes.schemas import CodeColumns

__all__ = ["direct_router"]

direct_router = APIRouter(prefix="/v1", tags=["codes"])

_SOURCES: dict[str, Source] = {
    "application/json": "json",
    "application/octet-stream": "raw",
    "application/x-npy": "npy",
    "application/npy": "npy",
    FORM: "image",
}
_TARGETS: dict[str, Target] = {
    "application/json": "json",
    "application/x-npz": "npz",
    "application/npz": "npz",
    "application/zip": "npz",
}


@direct_router.post(
    "/codes",
    operation_id="encode",
    summary="Sparse codes of descriptors, or of an image",
    response_model=CodeColumns,
    responses={200: CODES_ANSWER, **documented(400, 404, 406, 413, 415, 422, 429, 503, 504)},
    openapi_extra={"parameters": openapi_parameters(CodesParameters), **CODES_BODY},
)
async def encode(request: Request) -> Response:
    """Sparse codes by column.

    Descriptors come as JSON, as bare little-endian float32 of any length that is a multiple
    of 128 numbers, or as a `.npy` file of float16, float32 or float64. An image, raw or as
    the only file of a form, is answered with the codes of its dense grid, row by row, and
    `grid`. `Accept` chooses between JSON and an `.npz` file with the same columns.
    """
    context = context_of(request)
    asked = read_parameters(CodesParameters, request.scope)
    source, target = _source(request), choose_for(request, _TARGETS)
    manifest = context.repository.find(asked.model, asked.version).manifest
    observe(request.scope, manifest)
    pool = context.pool
    pool.check_room()
    body = await _read_body(request)
    forms = CodeForms(source, _TARGETS[target])
    work = pool.write_codes(ModelKey.of(manifest), body, forms, asked.timeout)
    codes = await while_connected(request.scope, work, queued=pool.would_wait)
    observe(request.scope, manifest, codes.timings)
    return Response(codes.value, media_type=target, headers={"Vary": "Accept"})


def _source(request: Request) -> Source:
    found = media_type(request.scope)
    if found in _SOURCES:
        return _SOURCES[found]
    if found.startswith("image/"):
        return "image"
    raise UnsupportedBodyError(
        f"the content type is {found[:80] or 'missing'}, expected one of "
        f"{', '.join(_SOURCES)}, image/*; "
        "with curl: -H 'Content-Type: image/png' --data-binary @photo.png"
    )


async def _read_body(request: Request) -> bytes:
    if media_type(request.scope) == FORM:
        files = await read_files(request, most=1)
        return files[0]
    body = await read_body(request)
    if not body:
        raise MalformedBodyError("the body is empty, expected descriptors or an image")
    return body
