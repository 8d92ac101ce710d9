"""`GET /v1/models…`: what is loaded, and the limits in force."""

from collections.abc import Iterable
from typing import Annotated, cast

from fastapi import APIRouter, Path, Request
from pydantic import JsonValue

from service.engine import Manifest
from service.http.problems import documented
from service.repository import ModelKey, Rejection
from service.routes.context import Context, context_of
from service.routes.schemas import Limits, ModelCard, Models, RejectedVersion
from service.siblings import SiblingStatus, versions_of

__all__ = ["PathName", "PathVersion", "common_keys", "router"]

router = APIRouter(prefix="/v1/models", tags=["models"])

PathName = Annotated[str, Path(description="Name of the model.")]
PathVersion = Annotated[int, Path(ge=0, description="Version of the model.")]
JsonObject = dict[str, JsonValue]


@router.get("", summary="All models", responses=documented(503))
async def list_models(request: Request) -> Models:
    """Every loaded version of every model, and those that were rejected since the start."""
    context = context_of(request)
    models = context.repository.models
    siblings = await context.siblings.statuses()
    keys = _common(context, siblings)
    rejections = {item.key: item for sibling in siblings for item in sibling.rejected}
    rejections |= {item.key: item for item in context.repository.rejected}
    return Models(
        models=[_card(context, models[key].manifest) for key in keys],
        rejected=[_rejected(rejections[key]) for key in sorted(rejections)],
    )


@router.get("/{name}", summary="One model", responses=documented(404, 422, 503))
async def get_model(request: Request, name: PathName) -> ModelCard:
    """The highest version of a model."""
    context = context_of(request)
    return _card(context, context.repository.find(name).manifest)


@router.get(
    "/{name}/versions/{version}",
    summary="One version of a model",
    responses=documented(404, 422, 503),
)
async def get_model_version(request: Request, name: PathName, version: PathVersion) -> ModelCard:
    """A version of a model."""
    context = context_of(request)
    return _card(context, context.repository.find(name, version).manifest)


async def common_keys(context: Context) -> list[ModelKey]:
    """The versions that every front end serves, as far as they tell."""
    return _common(context, await context.siblings.statuses())


def _common(context: Context, siblings: Iterable[SiblingStatus]) -> list[ModelKey]:
    present = [item.versions for item in siblings if not item.absence]
    own = versions_of(context.repository)
    return [key for key in sorted(own) if all(it.get(key) == own[key] for it in present)]


def _rejected(item: Rejection) -> RejectedVersion:
    key = item.key
    return RejectedVersion(name=key.name, version=key.version, error=item.error, since=item.since)


def _card(context: Context, manifest: Manifest) -> ModelCard:
    settings, repository = context.settings, context.repository
    return ModelCard(
        name=manifest.name,
        version=manifest.version,
        digest=manifest.digest,
        default=repository.default_key == ModelKey.of(manifest),
        versions=repository.versions(manifest.name),
        created=manifest.created,
        labels=list(manifest.labels),
        # A manifest was parsed from JSON, so that its members are JSON values.
        configuration=cast(JsonObject, manifest.config.to_json()),
        quality=cast(JsonObject, manifest.quality),
        provenance=cast(JsonObject, manifest.provenance),
        limits=Limits.model_validate(settings, from_attributes=True),
    )
