"""`/v2` beside inference: probes, metadata, configuration and the index of models.

Answers are never compressed, because the asynchronous client does not decompress metadata
and errors.
"""

from typing import Any

from fastapi import APIRouter, Request

from service.http.problems import documented
from service.repository import Model
from service.routes.context import Context, context_of
from service.routes.health import require_ready
from service.routes.models import PathName, PathVersion, common_keys
from service.routes.v2 import descriptions, schemas

__all__ = ["router"]

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol v2"])

_OF_MODEL: dict[str, Any] = {"responses": documented(404, 422, 503)}


@router.get("", summary="Name, version and extensions of the service")
async def get_server_metadata() -> schemas.ServerMetadata:
    """Lists the extensions of the protocol that work here."""
    return descriptions.server_metadata()


@router.get("/health/live", summary="Alive")
async def is_server_live() -> schemas.Live:
    """Answers as long as the process does."""
    return schemas.Live(live=True)


@router.get("/health/ready", summary="Ready for work", responses=documented(503))
async def is_server_ready(request: Request) -> schemas.Ready:
    """Answers 503 unless work is accepted and a worker that has proved its models is in service."""
    await require_ready(context_of(request))
    return schemas.Ready(ready=True)


@router.post("/repository/index", summary="All models", responses=documented(503))
async def get_repository_index(request: Request) -> list[schemas.IndexEntry]:
    """Every loaded version of every model; a body is not read."""
    return descriptions.index(await common_keys(context_of(request)))


@router.get("/models/{name}", summary="Inputs and outputs of a model", **_OF_MODEL)
async def get_model_metadata(name: PathName, request: Request) -> schemas.ModelMetadata:
    """Its highest version, and which others there are."""
    context = context_of(request)
    manifest = context.repository.find(name).manifest
    return descriptions.model_metadata(manifest, context.repository.versions(name))


@router.get(
    "/models/{name}/versions/{version}", summary="Inputs and outputs of a version", **_OF_MODEL
)
async def get_model_version_metadata(
    name: PathName, version: PathVersion, request: Request
) -> schemas.ModelMetadata:
    """What one version reads and answers."""
    context = context_of(request)
    manifest = context.repository.find(name, version).manifest
    return descriptions.model_metadata(manifest, [version])


@router.get("/models/{name}/ready", summary="Whether a model is ready", **_OF_MODEL)
async def is_model_ready(name: PathName, request: Request) -> schemas.ModelReady:
    """Answers 503 unless a worker is in service; all that are have it."""
    context = context_of(request)
    return await _ready(context, context.repository.find(name))


@router.get(
    "/models/{name}/versions/{version}/ready", summary="Whether a version is ready", **_OF_MODEL
)
async def is_model_version_ready(
    name: PathName, version: PathVersion, request: Request
) -> schemas.ModelReady:
    """Answers 503 unless a worker is in service; all that are have it."""
    context = context_of(request)
    return await _ready(context, context.repository.find(name, version))


@router.get("/models/{name}/config", summary="Configuration of a model", **_OF_MODEL)
async def get_model_config(name: PathName, request: Request) -> schemas.ModelConfig:
    """Its highest version in the words of Triton's model configuration."""
    context = context_of(request)
    return descriptions.model_config(context.repository.find(name).manifest)


@router.get(
    "/models/{name}/versions/{version}/config", summary="Configuration of a version", **_OF_MODEL
)
async def get_model_version_config(
    name: PathName, version: PathVersion, request: Request
) -> schemas.ModelConfig:
    """One version in the words of Triton's model configuration."""
    context = context_of(request)
    return descriptions.model_config(context.repository.find(name, version).manifest)


async def _ready(context: Context, model: Model) -> schemas.ModelReady:
    await require_ready(context)
    manifest = model.manifest
    return schemas.ModelReady(name=manifest.name, version=str(manifest.version), ready=True)
