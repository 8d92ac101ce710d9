"""`POST /v1/classify`: images to ranked labels.

One image, or several that are spread over the workers.
"""

from functools import lru_cache

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.engine import LeafcodeError, Manifest
from service.http.disconnect import while_connected
from service.http.problems import describe, documented
from service.observability.request_record import observe
from service.pool.job import Outcome
from service.repository import ModelKey
from service.routes.context import context_of
from service.routes.direct import WrittenJson
from service.routes.images import read_images
from service.routes.openapi import CLASSIFY_BODY
from service.routes.parameters import ClassifyParameters, openapi_parameters, read_parameters
from service.routes.schemas import Classification, Classifications, Failed, ModelRef

__all__ = ["direct_router"]

direct_router = APIRouter(prefix="/v1", tags=["classify"])


@direct_router.post(
    "/classify",
    operation_id="classify",
    summary="Ranked labels of images",
    response_model=Classification | Classifications,
    responses=documented(400, 404, 413, 415, 422, 429, 503, 504),
    openapi_extra={"parameters": openapi_parameters(ClassifyParameters), **CLASSIFY_BODY},
)
async def classify(request: Request) -> Response:
    """The best labels of one image, or of several in the order sent.

    JPEG, PNG, WebP, GIF, BMP and TIFF, and HEIC where the extra `heif` is installed; the first
    frame of an animation; transparency shows white. One file in a form is answered like a raw
    body. Among several images,
    a bad one gets a problem of its own and does not spoil its neighbours. `known` is false for
    an image that looks like none of the model's classes, whose labels are those that it resembles
    most. `explain=true` adds an explanation of the best label, as `/v1/explain` has it.
    """
    context = context_of(request)
    asked = read_parameters(ClassifyParameters, request.scope)
    manifest = context.repository.find(asked.model, asked.version).manifest
    observe(request.scope, manifest)
    key, pool = ModelKey.of(manifest), context.pool
    # Before a body is read that nobody has time for.
    pool.check_room()
    images = await read_images(request, context.settings.max_images)
    if not images.several:
        work = pool.classify(
            key, images.items[0], asked.top_k, asked.timeout, explain=asked.explain
        )
        ranked = await while_connected(request.scope, work, queued=pool.would_wait)
        observe(request.scope, manifest, ranked.timings)
        return _answer(manifest, ranked.value)
    many = pool.classify_many(key, images.items, asked.top_k, asked.timeout, explain=asked.explain)
    outcomes = await while_connected(request.scope, many, queued=pool.would_wait)
    timings = [item.timings for item in outcomes if isinstance(item, Outcome)]
    observe(request.scope, manifest, *timings)
    return _answer(manifest, b'{"results":[%b]}' % b",".join(map(_result, outcomes)))


def _result(outcome: Outcome[bytes] | LeafcodeError) -> bytes:
    if isinstance(outcome, LeafcodeError):
        return Failed(problem=describe(outcome)).model_dump_json(exclude_none=True).encode()
    return outcome.value


def _answer(manifest: Manifest, document: bytes) -> Response:
    """`Classification` or `Classifications`: JSON that workers wrote, and who they were."""
    reference = _reference(manifest.name, manifest.version, manifest.digest)
    return WrittenJson(b'{"model":%b,%b' % (reference, document[1:]))


@lru_cache
def _reference(name: str, version: int, digest: str) -> bytes:
    return ModelRef(name=name, version=version, digest=digest).model_dump_json().encode()
