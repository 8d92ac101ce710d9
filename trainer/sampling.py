"""Descriptors for the tree and the dictionary, drawn evenly over the training images."""

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from service.engine import ImageError, image, sift
from service.engine.arrays import Float32Array
from service.engine.config import Descriptor
from service.engine.tree import norms_of
from trainer.dataset import LabelledImage
from trainer.errors import DataError
from trainer.parallel import map_ordered

__all__ = ["Sample", "UnreadableImage", "log_unreadable", "sample_descriptors"]

logger = logging.getLogger(__name__)

# White backgrounds give thousands of all-zero descriptors; a norm below this is less
# than the noise of JPEG blocks.
_NEAR_ZERO = 0.05


@dataclass(frozen=True)
class UnreadableImage:
    """A file that no image could be read from, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Sample:
    """Descriptors (n, 128), the images they came from, and those that could not be read."""

    descriptors: Float32Array
    images: tuple[LabelledImage, ...]
    unreadable: tuple[UnreadableImage, ...]


def sample_descriptors(
    images: Sequence[LabelledImage],
    n_samples: int,
    max_side: int,
    seed: int,
    descriptor: Descriptor,
) -> Sample:
    """About `n_samples` descriptors, the same number of each image, near-zero ones left out."""
    per_image = math.ceil(n_samples / max(1, len(images)))

    def draw(number: int) -> Float32Array | UnreadableImage:
        path = images[number].path
        try:
            grid = sift.describe(image.decode(path.read_bytes(), max_side), descriptor)
        except (ImageError, OSError) as error:
            return UnreadableImage(path, str(error))
        rng = np.random.default_rng([seed, number])
        return _draw(grid.reshape(-1, grid.shape[2]), per_image, rng)

    drawn = list(map_ordered(draw, range(len(images)), "descriptors"))
    parts = [part for part in drawn if isinstance(part, np.ndarray)]
    if not parts or not sum(map(len, parts)):
        raise DataError("no descriptors: not one of the images is readable and shows anything")
    return Sample(
        np.concatenate(parts),
        tuple(im for im, part in zip(images, drawn, strict=True) if isinstance(part, np.ndarray)),
        tuple(part for part in drawn if isinstance(part, UnreadableImage)),
    )


def _draw(descriptors: Float32Array, count: int, rng: np.random.Generator) -> Float32Array:
    strong = np.flatnonzero(norms_of(descriptors) > _NEAR_ZERO)
    places = np.sort(rng.permutation(strong)[:count])
    drawn: Float32Array = descriptors[places]
    return drawn


def log_unreadable(unreadable: Iterable[UnreadableImage]) -> None:
    """Name and count the files that were left out."""
    files = list(unreadable)
    for file in files:
        logger.warning("left out %s: %s", file.path, file.reason)
    if files:
        logger.warning("%d unreadable file%s left out", len(files), "" if len(files) == 1 else "s")
