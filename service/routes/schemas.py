"""Shapes of what the service reads and answers, as they appear in OpenAPI."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from service.engine import DESCRIPTOR_WIDTH
from service.formats.json_bodies import LARGEST_NUMBER
from service.http.problems import Problem
from service.pool.state import State

__all__ = [
    "AtomShare",
    "BlockShare",
    "CellGrid",
    "Classification",
    "Classifications",
    "CodeColumns",
    "DescriptorsBody",
    "Explanation",
    "Failed",
    "Grid",
    "Health",
    "ImageBody",
    "ImageExplanation",
    "ImagesBody",
    "Limits",
    "ModelCard",
    "ModelRef",
    "Models",
    "Predicted",
    "RankedLabel",
    "Readiness",
    "RejectedVersion",
    "WorkerStatus",
]

_Base64 = Annotated[str, Field(json_schema_extra={"format": "byte"})]
_Number = Annotated[float, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]


class ModelRef(BaseModel):
    """Which bundle answered."""

    name: str = Field(examples=["caltech101"])
    version: int = Field(examples=[1])
    digest: str = Field(description="SHA-256 over the bundle's manifest.")


class RankedLabel(BaseModel):
    """One label and how probable it is; all labels of a model add up to one."""

    label: str = Field(examples=["yin_yang"])
    probability: float = Field(examples=[0.91])


class CellGrid(BaseModel):
    """The cells of an explanation divide the image, as it is shown, evenly."""

    rows: int
    cols: int
    width: int = Field(description="Width of the image after it was brought down to working size.")
    height: int = Field(description="Its height.")


class BlockShare(BaseModel):
    """What one block of the pooled vector adds to a score."""

    kind: str = Field(examples=["codes"])
    descriptor: str = Field(examples=["fast-sift"])
    contribution: float


class AtomShare(BaseModel):
    """What one atom of the dictionary adds to a score at one place."""

    atom_id: int
    left: int = Field(description="Left column of the patch, at working size.")
    top: int = Field(description="Its top row.")
    side: int = Field(description="Its width and height.")
    value: float = Field(description="Value of the atom in the code of the patch.")
    contribution: float


class Explanation(BaseModel):
    """Where the score of a label, or the difference of two labels' scores, comes from."""

    label: str = Field(examples=["yin_yang"])
    against: str | SkipJsonSchema[None] = Field(
        None, description="The label that it is compared with; only if one was named."
    )
    score: float = Field(description="All cells and the bias, or all blocks and the bias.")
    bias: float = Field(description="What every image gets.")
    cells: list[list[float]] = Field(description="What each cell adds, row by row.")
    grid: CellGrid
    blocks: list[BlockShare]
    atoms: list[AtomShare] = Field(description="The strongest twenty, whatever their sign.")


class ImageExplanation(Explanation):
    """The explanation of an image."""

    model: ModelRef


class Predicted(BaseModel):
    """The labels of one image among several."""

    known: bool = Field(
        description="Whether the image looks like one of the model's classes; if not, the "
        "predictions are those that it resembles most. Always true for a model whose "
        "configuration has no `known_threshold`."
    )
    predictions: list[RankedLabel] = Field(description="Best first.")
    explanation: Explanation | SkipJsonSchema[None] = Field(
        None, description="Of the best label; only if asked for."
    )


class Classification(Predicted):
    """The answer to one image."""

    model: ModelRef


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

    image: _Base64 = Field(description="Encoded image in base64, or as a data URI.")


class ImagesBody(BaseModel):
    """Several images as JSON; always answered with `results`."""

    model_config = ConfigDict(extra="forbid")

    images: list[_Base64] = Field(
        description="Encoded images in base64, or as data URIs.", min_length=1
    )


class DescriptorsBody(BaseModel):
    """Descriptors as JSON; none at all are answered with empty columns."""

    model_config = ConfigDict(extra="forbid")

    descriptors: list[
        Annotated[list[_Number], Field(min_length=DESCRIPTOR_WIDTH, max_length=DESCRIPTOR_WIDTH)]
    ] = Field(description="One row a descriptor.")


class Grid(BaseModel):
    """The dense grid of an image's descriptors, in pixels of the image at working size."""

    rows: int
    cols: int
    step: int = Field(description="Pixels from one patch to the next, across and down.")
    left: int = Field(description="Left column of the first patch.")
    top: int = Field(description="Top row of the first patch.")
    side: int = Field(description="Width and height of a patch.")
    width: int = Field(description="Width of the image after it was brought down to working size.")
    height: int = Field(description="Its height.")


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


class RejectedVersion(BaseModel):
    """A version that was found while serving and is not served."""

    name: str
    version: int
    error: str = Field(description="What was found and what was expected.")
    since: str = Field(description="Time of the rejection, ISO 8601.")


class Models(BaseModel):
    """Every loaded version of every model."""

    models: list[ModelCard]
    rejected: list[RejectedVersion] = Field(
        description="New versions that are not sound, tried again when their files change, or "
        "that could not be loaded for want of memory or the like, tried again by themselves."
    )


class Health(BaseModel):
    """A short word for probes."""

    status: str = Field(examples=["ok"])


class WorkerStatus(BaseModel):
    """One worker process."""

    model_config = ConfigDict(from_attributes=True)

    number: int = Field(description="From zero.")
    state: State
    pinned: bool = Field(description="Whether it keeps to its cores now.")
    cores: list[int] = Field(description="Its cores; none if the kernel places it.")
    ready: bool = Field(description="Whether it works, waits for work, or will in a moment.")
    reason: str = Field(description="Why it is not ready, if there is more to say.")
    restarts: int = Field(description="How often it was replaced.")


class Readiness(BaseModel):
    """A short word for probes, and every worker."""

    status: str = Field(examples=["ready"])
    workers: list[WorkerStatus]
