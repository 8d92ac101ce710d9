"""`POST /v1/classify`: images to ranked labels.

One image as the raw body, some as the files of a form, or base64 in JSON. Any other
content type is a raw image: curl, for one, calls every body a URL-encoded form.
"""

from functools import lru_cache

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.engine import LeafcodeError, Manifest
from service.formats.json_bodies import Images, media_type, parse_images
from service.http.body import read_body
from service.http.disconnect import TimeoutMs, seconds, while_connected
from service.http.problems import describe, documented
from service.http.uploads import FORM, read_files
from service.observability.request_record import observe
from service.pool.job import Outcome
from service.repository import ModelKey
from service.routes.context import Context, context_of
from service.routes.openapi import CLASSIFY_BODY
from service.routes.schemas import (
    Classification,
    Classifications,
    Failed,
    ModelName,
    ModelRef,
    TopK,
    Version,
)

__all__ = ["classify", "router"]

router = APIRouter(prefix="/v1", tags=["classify"])


@router.post(
    "/classify",
    summary="Ranked labels of images",
    response_model=Classification | Classifications,
    responses=documented(400, 404, 413, 415, 422, 429, 503, 504),
    openapi_extra=CLASSIFY_BODY,
)
async def classify(
    request: Request,
    top_k: TopK = 5,
    model: ModelName = None,
    version: Version = None,
    timeout_ms: TimeoutMs = None,
) -> Response:
    """The best labels of one image, or of several in the order sent.

    JPEG, PNG, WebP, GIF, BMP and TIFF; the first frame of an animation; transparency
    shows white. One file in a form is answered like a raw body. Among several images,
    a bad one gets a problem of its own and does not spoil its neighbours.
    """
    # Not `InContext`: as a dependency it costs the event loop 0.06 ms more.
    context = await context_of(request)
    manifest = context.repository.find(model, version).manifest
    observe(request, manifest)
    key = ModelKey.of(manifest)
    # Before a body is read that nobody has time for.
    context.pool.check_room()
    images = await _read_images(request, context)
    if not images.several:
        work = context.pool.classify(key, images.items[0], top_k, seconds(timeout_ms))
        ranked = await while_connected(request, context, work)
        observe(request, manifest, ranked.timings)
        return _answer(manifest, b"predictions", ranked.value)
    many = context.pool.classify_many(key, images.items, top_k, seconds(timeout_ms))
    outcomes = await while_connected(request, context, many)
    observe(request, manifest, *(item.timings for item in outcomes if isinstance(item, Outcome)))
    return _answer(manifest, b"results", b"[%b]" % b",".join(map(_result, outcomes)))


async def _read_images(request: Request, context: Context) -> Images:
    most = context.settings.max_images
    found = media_type(request.headers)
    if found == FORM:
        files = await read_files(request, most)
        return Images(files, several=len(files) > 1)
    body = await read_body(request)
    if found == "application/json" and body:
        return await run_in_threadpool(parse_images, body, most)
    return Images((body,), several=False)


def _result(outcome: Outcome[bytes] | LeafcodeError) -> bytes:
    if isinstance(outcome, LeafcodeError):
        return Failed(problem=describe(outcome)).model_dump_json(exclude_none=True).encode()
    return b'{"predictions":%b}' % outcome.value


def _answer(manifest: Manifest, name: bytes, value: bytes) -> Response:
    """`Classification` or `Classifications`, put together from JSON that workers wrote."""
    reference = _reference(manifest.name, manifest.version, manifest.digest)
    content = b'{"model":%b,"%b":%b}' % (reference, name, value)
    return Response(content, media_type="application/json")


@lru_cache
def _reference(name: str, version: int, digest: str) -> bytes:
    return ModelRef(name=name, version=version, digest=digest).model_dump_json().encode()
