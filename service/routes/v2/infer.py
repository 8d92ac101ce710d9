"""`POST /v2/models/…/infer`: tensors to tensors.

Bodies are read as they come, whatever their content type: the synchronous client sends
none. The images of a request are spread over the workers; a long JSON is read, worked on
and answered in one worker.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.engine import ImageError, LeafcodeError
from service.errors import MalformedBodyError
from service.formats.v2.answers import Answer, LabelResults, compose, in_batch, join, write_labels
from service.formats.v2.envelope import HEADER_LENGTH, Envelope, inflate, unwrap
from service.formats.v2.requests import BatchLimits, InferRequest, raw_image, read_request
from service.http.body import read_body
from service.http.disconnect import while_connected
from service.http.problems import documented
from service.observability.request_record import observe
from service.pool.job import Timings
from service.repository import Model, ModelKey
from service.routes.context import Context, context_of
from service.routes.direct import WrittenJson
from service.routes.parameters import (
    InferParameters,
    InferVersionParameters,
    openapi_parameters,
    read_parameters,
)
from service.routes.v2 import schemas

__all__ = ["direct_router"]

direct_router = APIRouter(prefix="/v2", tags=["Open Inference Protocol v2"])

# Twice as much of numbers took 1.6 ms of the event loop; more is read in a worker.
_MAX_JSON_BYTES = 32_768

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": schemas.inlined(schemas.InferBody)},
            "application/octet-stream": _BINARY,
        },
    }
}
_DECLARATION: dict[str, Any] = {
    "summary": "Labels of images, codes of descriptors",
    "response_model": schemas.InferAnswer,
    "responses": {
        **documented(400, 404, 413, 415, 422, 429, 503, 504),
        200: {"content": {"application/octet-stream": _BINARY}},
    },
}


@direct_router.post(
    "/models/{name}/infer",
    operation_id="infer",
    openapi_extra={"parameters": openapi_parameters(InferParameters), **_BODY},
    **_DECLARATION,
)
async def infer(request: Request) -> Response:
    """The outputs of the highest version of a model."""
    context = context_of(request)
    asked = read_parameters(InferParameters, request.scope)
    return await _infer(request, context, context.repository.find(asked.name), asked)


@direct_router.post(
    "/models/{name}/versions/{version}/infer",
    operation_id="infer_version",
    openapi_extra={"parameters": openapi_parameters(InferVersionParameters), **_BODY},
    **_DECLARATION,
)
async def infer_version(request: Request) -> Response:
    """The outputs of one version of a model."""
    context = context_of(request)
    asked = read_parameters(InferVersionParameters, request.scope)
    model = context.repository.find(asked.name, asked.version)
    return await _infer(request, context, model, asked)


async def _infer(
    request: Request, context: Context, model: Model, asked: InferParameters
) -> Response:
    observe(request.scope, model.manifest)
    context.pool.check_room()
    body = await read_body(request)
    encoding = request.headers.get("content-encoding")
    if encoding:
        most = context.settings.max_body_bytes
        body = await run_in_threadpool(inflate, body, encoding, most)
    work = _work(context, model, unwrap(body, asked.header_length), asked.timeout)
    answer, timings = await while_connected(request.scope, work, queued=context.pool.would_wait)
    observe(request.scope, model.manifest, *timings)
    if answer.header_length is None:
        return WrittenJson(answer.body)
    headers = {HEADER_LENGTH: str(answer.header_length)}
    return Response(answer.body, headers=headers, media_type="application/octet-stream")


async def _work(
    context: Context,
    model: Model,
    envelope: Envelope,
    timeout: float | None,  # noqa: ASYNC109
) -> tuple[Answer, list[Timings]]:
    key, header, tail = ModelKey.of(model.manifest), envelope.header, envelope.tail
    if header is not None and len(header) > _MAX_JSON_BYTES:
        if len(tail):
            raise MalformedBodyError(
                f"the JSON has {len(header)} bytes beside its data, "
                f"expected at most {_MAX_JSON_BYTES}"
            )
        done = await context.pool.infer_json(key, header, timeout)
        return done.value, [done.timings]
    settings = context.settings
    limits = BatchLimits(settings.max_images, settings.max_descriptors)
    request = raw_image(bytes(tail)) if header is None else read_request(header, tail, limits)
    timeout = min([limit for limit in (timeout, request.timeout) if limit], default=None)
    if isinstance(request.batch, tuple):
        return await _infer_images(context, model, request, timeout)
    descriptors = request.batch.astype("<f4", copy=False).tobytes()
    coded = await context.pool.infer_descriptors(
        key, descriptors, request.outputs, request.id, timeout
    )
    return coded.value, [coded.timings]


async def _infer_images(
    context: Context,
    model: Model,
    request: InferRequest,
    timeout: float | None,  # noqa: ASYNC109
) -> tuple[Answer, list[Timings]]:
    """The answer to all images, or the error of the first one that has none."""
    images, manifest = request.batch, model.manifest
    assert isinstance(images, tuple)  # noqa: S101
    if not images:
        results = LabelResults.of_no_images(len(manifest.labels))
        tensors = write_labels(manifest, results, request.outputs)
        return compose(manifest, request.id, tensors), []
    key = ModelKey.of(manifest)
    outcomes = await context.pool.infer_images(key, images, request.outputs, timeout)
    parts, timings = [], []
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, ImageError):
            raise in_batch(outcome, number, len(outcomes)) from outcome
        if isinstance(outcome, LeafcodeError):
            raise outcome
        parts.append(outcome.value)
        timings.append(outcome.timings)
    return compose(manifest, request.id, join(parts)), timings
