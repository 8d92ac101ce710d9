"""What the service answers, as plain values; members that are new to us are ignored.

The schemas of the service are not shared: importing them loads the web framework and the
compiler, and a client must go on reading the answers of a newer service.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, fields
from http import HTTPStatus
from typing import Any, TypeVar

import httpx
import numpy as np
import numpy.typing as npt

__all__ = [
    "AtomShare",
    "BlockShare",
    "Classification",
    "Explanation",
    "ImageCodes",
    "ModelCard",
    "ModelRef",
    "Problem",
    "RankedLabel",
    "SparseCodes",
    "read_classification",
    "read_codes",
    "read_dictionary",
    "read_explanation",
    "read_image_codes",
    "read_models",
    "read_problem",
    "read_results",
]

_QUOTED_LENGTH = 200


@dataclass(frozen=True)
class Problem:
    """What went wrong (RFC 9457); `instance` is the request id in the service's log."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None


@dataclass(frozen=True)
class ModelRef:
    """Which bundle answered."""

    name: str
    version: int
    digest: str


@dataclass(frozen=True)
class RankedLabel:
    """One label and how probable it is."""

    label: str
    probability: float


@dataclass(frozen=True)
class AtomShare:
    """What one atom adds to a score at one patch, in pixels of the image at working size."""

    atom_id: int
    left: int
    top: int
    side: int
    value: float
    contribution: float


@dataclass(frozen=True)
class BlockShare:
    """What one block of the pooled vector adds to a score."""

    kind: str
    descriptor: str
    contribution: float


Share = TypeVar("Share", AtomShare, BlockShare)


@dataclass(frozen=True)
class Explanation:
    """Where the score of a label comes from, or its difference to that of `against`.

    cells (rows, cols) divide the image evenly; they and `bias` add up to `score`, and so do
    `blocks` and `bias`. `width` and `height` are those of the image at working size.
    """

    label: str
    against: str | None
    score: float
    bias: float
    cells: npt.NDArray[np.float64]
    width: int
    height: int
    blocks: tuple[BlockShare, ...]
    atoms: tuple[AtomShare, ...]


@dataclass(frozen=True)
class Classification:
    """The labels of one image, best first, and where the best one's score comes from if asked.

    An image that is not `known` looks like none of the model's classes: the predictions are those
    that it resembles most. To models without a threshold all images are known.
    """

    model: ModelRef
    predictions: tuple[RankedLabel, ...]
    explanation: Explanation | None = None
    known: bool = True


@dataclass(frozen=True)
class SparseCodes:
    """Sparse codes by column: leaf_ids (n,), atom_ids (n, m), values (n, m)."""

    model: ModelRef
    n_atoms: int
    leaf_ids: npt.NDArray[np.int32]
    atom_ids: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


@dataclass(frozen=True)
class ImageCodes:
    """The codes of an image's dense grid of rows x cols descriptors, row by row.

    The first patch of `side` pixels has its corner at `left` and `top`, the next one is `step`
    pixels further, all in an image that was brought down to `width` and `height`.
    """

    codes: SparseCodes
    rows: int
    cols: int
    step: int
    left: int
    top: int
    side: int
    width: int
    height: int


@dataclass(frozen=True)
class ModelCard:
    """What a bundle says about itself, and the limits that the service has in force."""

    name: str
    version: int
    digest: str
    default: bool
    versions: tuple[int, ...]
    created: str
    labels: tuple[str, ...]
    configuration: Mapping[str, Any]
    quality: Mapping[str, Any]
    provenance: Mapping[str, Any]
    limits: Mapping[str, int]


def read_classification(response: httpx.Response) -> Classification:
    """The labels of the only image."""
    document = response.json()
    return _classification(_model(document["model"]), document)


def read_explanation(response: httpx.Response) -> Explanation:
    """The explanation of the only image."""
    return _explanation(response.json())


def read_results(response: httpx.Response) -> list[Classification | Problem]:
    """The labels, or the problem, of each of several images."""
    document = response.json()
    model = _model(document["model"])
    return [
        _problem(result["problem"]) if "problem" in result else _classification(model, result)
        for result in document["results"]
    ]


def read_codes(response: httpx.Response) -> SparseCodes:
    """The columns of an `.npz` file."""
    return _codes(_arrays(response))


def read_image_codes(response: httpx.Response) -> ImageCodes:
    """The columns of an `.npz` file, and their grid."""
    arrays = _arrays(response)
    rows, cols = arrays["grid"].tolist()
    left, top = arrays["grid_origin"].tolist()
    width, height = arrays["image_size"].tolist()
    step, side = arrays["grid_step"].item(), arrays["grid_side"].item()
    return ImageCodes(_codes(arrays), rows, cols, step, left, top, side, width, height)


def read_dictionary(response: httpx.Response) -> npt.NDArray[np.float32]:
    """The array of a `.npy` file."""
    dictionary: npt.NDArray[np.float32] = np.load(io.BytesIO(response.content), allow_pickle=False)
    return dictionary


def read_models(response: httpx.Response) -> list[ModelCard]:
    """Every loaded version of every model."""
    return [_card(document) for document in response.json()["models"]]


def read_problem(response: httpx.Response) -> Problem:
    """The problem document of an error; one made up if a proxy answered in its own words."""
    try:
        return _problem(response.json())
    except (ValueError, KeyError, TypeError):
        status = response.status_code
        known = status in HTTPStatus.__members__.values()
        title = HTTPStatus(status).phrase if known else f"Status {status}"
        return Problem("about:blank", title, status, response.text[:_QUOTED_LENGTH] or title)


def _problem(document: Mapping[str, Any]) -> Problem:
    return Problem(
        document["type"],
        document["title"],
        document["status"],
        document["detail"],
        document.get("instance"),
    )


def _model(document: Mapping[str, Any]) -> ModelRef:
    return ModelRef(document["name"], document["version"], document["digest"])


def _classification(model: ModelRef, document: Mapping[str, Any]) -> Classification:
    explanation = document.get("explanation")
    return Classification(
        model,
        _ranked(document["predictions"]),
        None if explanation is None else _explanation(explanation),
        document.get("known", True),
    )


def _explanation(document: Mapping[str, Any]) -> Explanation:
    return Explanation(
        label=document["label"],
        against=document.get("against"),
        score=document["score"],
        bias=document["bias"],
        cells=np.array(document["cells"], np.float64),
        width=document["grid"]["width"],
        height=document["grid"]["height"],
        blocks=tuple(_known(BlockShare, item) for item in document["blocks"]),
        atoms=tuple(_known(AtomShare, item) for item in document["atoms"]),
    )


def _known(kind: type[Share], document: Mapping[str, Any]) -> Share:
    return kind(**{field.name: document[field.name] for field in fields(kind)})


def _ranked(items: list[Mapping[str, Any]]) -> tuple[RankedLabel, ...]:
    return tuple(RankedLabel(item["label"], item["probability"]) for item in items)


def _card(document: Mapping[str, Any]) -> ModelCard:
    return ModelCard(
        name=document["name"],
        version=document["version"],
        digest=document["digest"],
        default=document["default"],
        versions=tuple(document["versions"]),
        created=document["created"],
        labels=tuple(document["labels"]),
        configuration=document["configuration"],
        quality=document["quality"],
        provenance=document["provenance"],
        limits=document["limits"],
    )


def _arrays(response: httpx.Response) -> dict[str, npt.NDArray[Any]]:
    with np.load(io.BytesIO(response.content), allow_pickle=False) as file:
        return dict(file)


def _codes(arrays: Mapping[str, npt.NDArray[Any]]) -> SparseCodes:
    return SparseCodes(
        ModelRef(*(arrays[f"model_{member}"].item() for member in ("name", "version", "digest"))),
        arrays["n_atoms"].item(),
        arrays["leaf_ids"],
        arrays["atom_ids"],
        arrays["values"],
    )
