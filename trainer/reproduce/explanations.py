"""Whether explanations add up, and whether what they point at is what counts.

The deletion curve of an image: its most important cells are replaced by its mean colour, more and
more of them, and the score of its label is measured each time. The lower the mean of the curve,
the more of what counts was found. Beside the order of an explanation stand a random one, and maps
of occlusion: how much the score falls if one of some squares is replaced. An explanation takes
half as long again as a score; a map of occlusion needs a score for each of its squares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field

from service.engine import EXPLANATION_CELLS, Engine, ImageError
from service.engine.arrays import Float64Array, IntpArray, UInt8Array
from service.engine.image import decode_rgb
from trainer.data.dataset import LabelledImage, scan
from trainer.errors import DataError
from trainer.evaluate import choose_test_images
from trainer.parallel import map_ordered
from trainer.settings import Settings

__all__ = ["ExplanationReport", "ExplanationSettings", "measure_explanations"]

Mask = npt.NDArray[np.bool_]

# Squares a side of the maps of occlusion.
_OCCLUSIONS = (2, 4, 8)
_ORDERS = ("explanation", "random", *(f"occlusion {side}x{side}" for side in _OCCLUSIONS))


class ExplanationSettings(Settings):
    """How many images, and how finely their cells are taken away."""

    images: int = Field(1000, ge=1, le=10**6, description="test images whose explanations add up")
    deletions: int = Field(500, ge=0, le=10**6, description="images of these with a curve")
    steps: int = Field(10, ge=1, le=100, description="points of a curve")
    share: float = Field(0.5, gt=0, le=1, description="part of the cells at its last point")
    split_seed: int = Field(0, ge=0, le=2**63 - 1, description="split whose test images are taken")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="seed of what is random")


@dataclass(frozen=True)
class ExplanationReport:
    """The largest difference of a sum from its score, and the mean score by what is taken away.

    That is nothing, or cells in the order of a map, a point of the curve after the other.
    `deviations` are the standard errors of the means.
    """

    name: str
    n_images: int
    largest_difference: float
    n_curves: int
    curves: dict[str, float]
    deviations: dict[str, float]


@dataclass(frozen=True)
class _Outcome:
    difference: float
    areas: dict[str, float]


def measure_explanations(
    bundle: Path, folder: Path, settings: ExplanationSettings
) -> ExplanationReport:
    """Explain test images of a bundle; those that cannot be read are passed over."""
    engine = Engine.load(bundle)
    images = choose_test_images(engine, scan(folder), settings.split_seed, None).images
    rng = np.random.default_rng(settings.seed)
    chosen = [images[place] for place in rng.permutation(len(images))[: settings.images]]
    study = _Study(engine, settings)
    numbered = list(enumerate(chosen))
    outcomes = [found for found in map_ordered(study.outcome, numbered, "images") if found]
    if not outcomes:
        raise DataError(f"none of the {len(chosen)} test images is readable")
    curves = [found.areas for found in outcomes if found.areas]
    areas = {
        name: np.array([curve[name] for curve in curves])
        for name in ("nothing", *_ORDERS)
        if curves
    }
    return ExplanationReport(
        name=engine.manifest.name,
        n_images=len(outcomes),
        largest_difference=max(found.difference for found in outcomes),
        n_curves=len(curves),
        curves={name: float(values.mean()) for name, values in areas.items()},
        deviations={name: _standard_error(values) for name, values in areas.items()},
    )


def _standard_error(values: Float64Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class _Study:
    engine: Engine
    settings: ExplanationSettings

    def outcome(self, numbered: tuple[int, LabelledImage]) -> _Outcome | None:
        number, image = numbered
        try:
            data = image.path.read_bytes()
            found = self.engine.explain(data)
            difference = abs(float(found.cells.sum()) + found.bias - found.score)
            areas = self._areas(data, number) if number < self.settings.deletions else {}
        except (ImageError, OSError):
            return None
        return _Outcome(difference, areas)

    def _areas(self, data: bytes, number: int) -> dict[str, float]:
        pixels = decode_rgb(data, self.engine.config.max_side)
        picture = _Picture(self.engine, pixels, int(self._scores(pixels).argmax()))
        rng = np.random.default_rng([self.settings.seed, number])
        maps = [
            self.engine.explain(_encoded(pixels), self.engine.labels[picture.label]).cells,
            rng.random((EXPLANATION_CELLS, EXPLANATION_CELLS)),
            *(picture.occlusion_map(side) for side in _OCCLUSIONS),
        ]
        areas = [self._area(picture, importance) for importance in maps]
        return {"nothing": picture.score(), **dict(zip(_ORDERS, areas, strict=True))}

    def _scores(self, pixels: UInt8Array) -> Float64Array:
        return self.engine.scores(_encoded(pixels)).astype(np.float64)

    def _area(self, picture: "_Picture", importance: Float64Array) -> float:
        """The mean score while more and more of the most important cells are taken away."""
        order = np.argsort(-importance.reshape(-1), kind="stable")
        shares = self.settings.share * np.arange(1, self.settings.steps + 1) / self.settings.steps
        return float(np.mean([picture.score(order[: round(s * len(order))]) for s in shares]))


@dataclass(frozen=True)
class _Picture:
    """An image (h, w, 3) of which cells are taken away, and the label that is looked at."""

    engine: Engine
    pixels: UInt8Array
    label: int

    def score(self, cells: IntpArray | Sequence[int] = ()) -> float:
        """The score of the label without these cells."""
        without = self.pixels.copy()
        mean = self.pixels.reshape(-1, 3).mean(axis=0).round().astype(np.uint8)
        gone = np.zeros(EXPLANATION_CELLS**2, np.bool_)
        gone[list(cells)] = True
        without[self._at_pixels(gone.reshape(EXPLANATION_CELLS, EXPLANATION_CELLS))] = mean
        return float(self.engine.scores(_encoded(without))[self.label])

    def occlusion_map(self, side: int) -> Float64Array:
        """How much the score falls without each of side x side squares, in cells."""
        whole, falls = self.score(), np.empty((side, side))
        squares = np.arange(EXPLANATION_CELLS) * side // EXPLANATION_CELLS
        square_ids = (squares[:, np.newaxis] * side + squares).reshape(-1)
        for number in range(side**2):
            falls.flat[number] = whole - self.score(np.flatnonzero(square_ids == number))
        importance: Float64Array = falls[squares][:, squares]
        return importance

    def _at_pixels(self, cells: Mask) -> Mask:
        height, width = self.pixels.shape[:2]
        rows, cols = (np.arange(size) * EXPLANATION_CELLS // size for size in (height, width))
        at_pixels: Mask = cells[rows][:, cols]
        return at_pixels


def _encoded(pixels: UInt8Array) -> bytes:
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", compress_level=0)
    return stream.getvalue()
