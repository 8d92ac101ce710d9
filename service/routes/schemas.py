"""Shapes of what the service reads and answers, as they appear in OpenAPI."""

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from service.engine import DESCRIPTOR_WIDTH, Manifest
from service.formats.json_bodies import LARGEST_NUMBER

__all__ = [
    "Classification",
    "Classifications",
    "CodeColumns",
    "DescriptorsBody",
    "Failed",
    "Grid",
    "Health",
    "ImageBody",
    "ImagesBody",
    "Limits",
    "ModelCard",
    "ModelName",
    "ModelRef",
    "Models",
    "Predicted",
    "Problem",
    "RankedLabel",
    "RefusedVersion",
    "TopK",
    "Version",
]

TopK = Annotated[
    int, Query(ge=1, description="How many labels to answer; never more than the model has.")
]
ModelName = Annotated[
    str | SkipJsonSchema[None],
    Query(description="Name of the model; the first by name unless given."),
]
Version = Annotated[
    Annotated[int, Field(ge=0)] | SkipJsonSchema[None],
    Query(description="Version of the model; the highest unless given."),
]

_Base64 = Annotated[str, Field(json_schema_extra={"format": "byte"})]
_Number = Annotated[float, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]


class Problem(BaseModel):
    """What went wrong (RFC 9457). `error` repeats `detail` for inference protocol clients."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "urn:leafcode:problem:unsupported-image",
                "title": "Not an image",
                "status": 415,
                "detail": "the 5 bytes are not an image in a format that is read here, "
                "expected one of JPEG, PNG, WEBP, GIF, BMP, TIFF",
                "instance": "7f1c4b0d6b0f4f0c9f1f6f0f1c2d3e4f",
                "error": "the 5 bytes are not an image in a format that is read here, "
                "expected one of JPEG, PNG, WEBP, GIF, BMP, TIFF",
            }
        }
    )

    type: str = Field(description="Names the kind of problem; stable.")
    title: str = Field(description="The kind of problem in words.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="What was found and what was expected.")
    instance: str | None = Field(None, description="Request id, as in X-Request-Id and the log.")
    error: str = Field(description="The same as detail.")


class ModelRef(BaseModel):
    """Which bundle answered."""

    name: str = Field(examples=["caltech101"])
    version: int = Field(examples=[1])
    digest: str = Field(description="SHA-256 over the bundle's manifest.")

    @classmethod
    def of(cls, manifest: Manifest) -> "ModelRef":
        """Names the bundle that `manifest` describes."""
        return cls(name=manifest.name, version=manifest.version, digest=manifest.digest)


class RankedLabel(BaseModel):
    """One label and how probable it is; all labels of a model add up to one."""

    label: str = Field(examples=["yin_yang"])
    probability: float = Field(examples=[0.91])


class Classification(BaseModel):
    """The answer to one image."""

    model: ModelRef
    predictions: list[RankedLabel] = Field(description="Best first.")


class Predicted(BaseModel):
    """The labels of one image among several."""

    predictions: list[RankedLabel] = Field(description="Best first.")


class Failed(BaseModel):
    """Why one image among several has no labels."""

    problem: Problem


class Classifications(BaseModel):
    """The answer to several images, in the order sent."""

    model: ModelRef
    results: list[Predicted | Failed]


class ImageBody(BaseModel):
    """One image as JSON."""

    model_config = ConfigDict(extra="forbid")

    image: _Base64 = Field(description="Encoded image in base64.")


class ImagesBody(BaseModel):
    """Several images as JSON; always answered with `results`."""

    model_config = ConfigDict(extra="forbid")

    images: list[_Base64] = Field(description="Encoded images in base64.", min_length=1)


class DescriptorsBody(BaseModel):
    """Descriptors as JSON; none at all are answered with empty columns."""

    model_config = ConfigDict(extra="forbid")

    descriptors: list[
        Annotated[list[_Number], Field(min_length=DESCRIPTOR_WIDTH, max_length=DESCRIPTOR_WIDTH)]
    ] = Field(description="One row a descriptor.")


class Grid(BaseModel):
    """The dense grid of an image's descriptors."""

    rows: int
    cols: int


class CodeColumns(BaseModel):
    """Sparse codes of n descriptors with m nonzeros each, by column."""

    model: ModelRef
    n_atoms: int = Field(description="Atoms of the dictionary; ids count from zero.")
    leaf_ids: list[int] = Field(description="n leaves of the tree.")
    atom_ids: list[list[int]] = Field(description="n rows of m atoms.")
    values: list[list[float]] = Field(description="n rows of m values, beside the atoms.")
    grid: Grid | SkipJsonSchema[None] = Field(
        None, description="The n descriptors of an image lie on it row by row; only for images."
    )


class Limits(BaseModel):
    """What one request may hold."""

    max_body_bytes: int
    max_image_pixels: int
    max_image_side: int
    max_images: int
    max_descriptors: int


class ModelCard(BaseModel):
    """Everything that a bundle says about itself, and the limits in force."""

    name: str
    version: int
    digest: str = Field(description="SHA-256 over the bundle's manifest.")
    default: bool = Field(description="Whether requests that name no model get this one.")
    versions: list[int] = Field(description="Loaded versions of this model.")
    created: str
    labels: list[str]
    configuration: dict[str, JsonValue]
    quality: dict[str, JsonValue]
    provenance: dict[str, JsonValue]
    limits: Limits


class RefusedVersion(BaseModel):
    """A version that was found while serving and is not served."""

    name: str
    version: int
    error: str = Field(description="What was found and what was expected.")
    since: str = Field(description="Time of the refusal, ISO 8601.")


class Models(BaseModel):
    """Every loaded version of every model."""

    models: list[ModelCard]
    refused: list[RefusedVersion] = Field(
        description="New versions that are not sound; tried again when their files change."
    )


class Health(BaseModel):
    """A short word for probes."""

    status: str = Field(examples=["ok"])
