"""`/v2`: the Open Inference Protocol, as `tritonclient[http]` speaks it.

Bodies are read as they come, whatever their content type: the synchronous client sends
none. Answers are never compressed, because the asynchronous client does not decompress
metadata and errors.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Header, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.engine import ImageError, LeafcodeError
from service.engine.arrays import Float32Array
from service.errors import MalformedBodyError
from service.formats.v2.answers import Answer, code_tensors, compose, label_tensors
from service.formats.v2.envelope import HEADER_LENGTH, Envelope, inflate, unwrap
from service.formats.v2.requests import BatchLimits, InferRequest, raw_image, read_request
from service.http.body import read_body
from service.http.disconnect import TimeoutMs, seconds, while_connected
from service.http.problems import documented
from service.observability.request_record import observe
from service.pool.job import Outcome, Timings
from service.repository import Model, ModelKey
from service.routes import v2_metadata as metadata
from service.routes import v2_schemas as schemas
from service.routes.context import Context, InContext, context_of
from service.routes.health import readyz
from service.routes.models import PathName, PathVersion

__all__ = ["router"]

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol v2"])

HeaderLength = Annotated[
    str | None,
    Header(
        alias=HEADER_LENGTH,
        description="Where the JSON ends and tensors begin; 0 says that the body is an image.",
    ),
]

# Twice as much of numbers took 1.6 ms of the event loop; more is read in a worker.
_MOST_JSON_BYTES = 32_768

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_INFER: dict[str, Any] = {
    "response_model": schemas.InferAnswer,
    "responses": {
        **documented(400, 404, 413, 415, 422, 429, 503, 504),
        200: {"content": {"application/octet-stream": _BINARY}},
    },
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": schemas.inlined(schemas.InferBody)},
                "application/octet-stream": _BINARY,
            },
        }
    },
}
_OF_MODEL: dict[str, Any] = {"responses": documented(404, 422, 503)}


@router.get("", summary="Name, version and extensions of the service")
async def server_metadata() -> schemas.ServerMetadata:
    """Lists the extensions of the protocol that work here."""
    return metadata.server_metadata()


@router.get("/health/live", summary="Alive")
async def live() -> schemas.Live:
    """Answers as long as the process does."""
    return schemas.Live(live=True)


@router.get("/health/ready", summary="Ready for work", responses=documented(503))
async def ready(context: InContext) -> schemas.Ready:
    """Answers 503 unless every worker is alive, has its models and answers."""
    await readyz(context)
    return schemas.Ready(ready=True)


@router.post("/repository/index", summary="All models", responses=documented(503))
async def repository_index(context: InContext) -> list[schemas.IndexEntry]:
    """Every loaded version of every model; a body is not read."""
    return metadata.index(context.repository)


@router.get("/models/{name}", summary="Inputs and outputs of a model", **_OF_MODEL)
async def model_metadata(name: PathName, context: InContext) -> schemas.ModelMetadata:
    """Its highest version, and which others there are."""
    manifest = context.repository.find(name).manifest
    return metadata.model_metadata(manifest, context.repository.versions(name))


@router.get(
    "/models/{name}/versions/{version}", summary="Inputs and outputs of a version", **_OF_MODEL
)
async def version_metadata(
    name: PathName, version: PathVersion, context: InContext
) -> schemas.ModelMetadata:
    """What one version reads and answers."""
    manifest = context.repository.find(name, version).manifest
    return metadata.model_metadata(manifest, [version])


@router.get("/models/{name}/ready", summary="Whether a model is ready", **_OF_MODEL)
async def model_ready(name: PathName, context: InContext) -> schemas.ModelReady:
    """Answers 503 unless every worker has it."""
    return await _ready(context, context.repository.find(name))


@router.get(
    "/models/{name}/versions/{version}/ready", summary="Whether a version is ready", **_OF_MODEL
)
async def version_ready(
    name: PathName, version: PathVersion, context: InContext
) -> schemas.ModelReady:
    """Answers 503 unless every worker has it."""
    return await _ready(context, context.repository.find(name, version))


@router.get("/models/{name}/config", summary="Configuration of a model", **_OF_MODEL)
async def model_config(name: PathName, context: InContext) -> schemas.ModelConfig:
    """Its highest version in the words of Triton's model configuration."""
    return metadata.model_config(context.repository.find(name).manifest)


@router.get(
    "/models/{name}/versions/{version}/config", summary="Configuration of a version", **_OF_MODEL
)
async def version_config(
    name: PathName, version: PathVersion, context: InContext
) -> schemas.ModelConfig:
    """One version in the words of Triton's model configuration."""
    return metadata.model_config(context.repository.find(name, version).manifest)


@router.post("/models/{name}/infer", summary="Labels of images, codes of descriptors", **_INFER)
async def infer(
    request: Request,
    name: PathName,
    header_length: HeaderLength = None,
    timeout_ms: TimeoutMs = None,
) -> Response:
    """The outputs of the highest version of a model.

    The input `image` is answered with `label`, `label_id` and `probabilities`, the input
    `descriptors` with `leaf_id`, `atom_ids` and `values`. One bad item refuses the request.
    """
    context = await context_of(request)
    model = context.repository.find(name)
    return await _infer(request, context, model, (header_length, seconds(timeout_ms)))


@router.post(
    "/models/{name}/versions/{version}/infer",
    summary="Labels of images, codes of descriptors, by one version",
    **_INFER,
)
async def infer_version(
    request: Request,
    name: PathName,
    version: PathVersion,
    header_length: HeaderLength = None,
    timeout_ms: TimeoutMs = None,
) -> Response:
    """The outputs of one version of a model."""
    context = await context_of(request)
    model = context.repository.find(name, version)
    return await _infer(request, context, model, (header_length, seconds(timeout_ms)))


async def _ready(context: Context, model: Model) -> schemas.ModelReady:
    await readyz(context)
    manifest = model.manifest
    return schemas.ModelReady(name=manifest.name, version=str(manifest.version), ready=True)


async def _infer(
    request: Request, context: Context, model: Model, stated: tuple[str | None, float | None]
) -> Response:
    header_length, patience = stated
    context.pool.check_room()
    body = await read_body(request)
    encoding = request.headers.get("content-encoding")
    if encoding:
        most = context.settings.max_body_bytes
        body = await run_in_threadpool(inflate, body, encoding, most)
    observe(request, model.manifest)
    work = _work(context, model, unwrap(body, header_length), patience)
    answer, timings = await while_connected(request, context, work)
    observe(request, model.manifest, *timings)
    if answer.header_length is None:
        return Response(answer.body, media_type="application/json")
    headers = {HEADER_LENGTH: str(answer.header_length)}
    return Response(answer.body, headers=headers, media_type="application/octet-stream")


async def _work(
    context: Context, model: Model, envelope: Envelope, patience: float | None
) -> tuple[Answer, list[Timings]]:
    loop = asyncio.get_running_loop()
    start = loop.time()
    # A long JSON tells its own timeout only when a worker has read it; that time counts.
    request = await _read(context, envelope, patience)
    limits = [limit for limit in (patience, request.patience) if limit is not None]
    left = min(limits) - (loop.time() - start) if limits else None
    key, manifest = ModelKey.of(model.manifest), model.manifest
    if isinstance(request.batch, tuple):
        outcomes = await context.pool.scores_many(key, request.batch, left)
        scores = _scores(outcomes, len(manifest.labels))
        tensors = label_tensors(manifest, scores, request.outputs)
        timings = [item.timings for item in outcomes if isinstance(item, Outcome)]
        return compose(manifest, request, tensors), timings
    codes = await context.pool.encode(key, request.batch, left)
    tensors = code_tensors(codes.value, request.outputs)
    return compose(manifest, request, tensors), [codes.timings]


async def _read(context: Context, envelope: Envelope, patience: float | None) -> InferRequest:
    settings, header, tail = context.settings, envelope.header, envelope.tail
    if header is None:
        return raw_image(bytes(tail))
    limits = BatchLimits(settings.max_images, settings.max_descriptors)
    if len(header) > _MOST_JSON_BYTES and not len(tail):
        packed = await context.pool.pack_json(header, limits, patience)
        length, body = packed.value
        header, tail = body[:length], memoryview(body)[length:]
    if len(header) > _MOST_JSON_BYTES:
        raise MalformedBodyError(
            f"the JSON has {len(header)} bytes beside its data, expected at most {_MOST_JSON_BYTES}"
        )
    return read_request(header, tail, limits)


def _scores(
    outcomes: Sequence[Outcome[Float32Array] | LeafcodeError], n_labels: int
) -> Float32Array:
    """Scores (n, n_labels), or the error of the first image that has none."""
    scores = np.empty((len(outcomes), n_labels), np.float32)
    for number, outcome in enumerate(outcomes):
        if isinstance(outcome, ImageError) and len(outcomes) > 1:
            raise type(outcome)(f"image {number}: {outcome}") from outcome
        if isinstance(outcome, LeafcodeError):
            raise outcome
        scores[number] = outcome.value
    return scores
