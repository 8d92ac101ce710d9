"""Descriptors for the tree and the dictionary, drawn evenly over the training images."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from service.engine import ImageError, description, image
from service.engine.arrays import Float32Array, Int32Array
from service.engine.config import ViewConfig
from service.engine.image import Picture
from service.engine.tree import norms_of
from trainer.data.dataset import LabelledImage
from trainer.data.image_files import printable
from trainer.data.scratch import joined
from trainer.errors import DataError
from trainer.parallel import map_ordered

__all__ = [
    "Sample",
    "SampleSettings",
    "UnreadableImage",
    "descriptors_per_image",
    "draw_descriptors",
    "log_unreadable",
    "sample_descriptors",
]

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
    """Descriptors (n, 128), the images they came from, and those that could not be read.

    image_ids (n,) is the place of each descriptor's image in `images`.
    """

    descriptors: Float32Array
    image_ids: Int32Array
    images: tuple[LabelledImage, ...]
    unreadable: tuple[UnreadableImage, ...]


_PLAIN_VIEW = ViewConfig(depth=1)


@dataclass(frozen=True)
class SampleSettings:
    """How many descriptors of which view, and where to keep them; the view's depth is not read.

    `scratch` is a folder for files that stand in for memory; None keeps them in memory.
    """

    samples: int
    max_side: int = 300
    seed: int = 0
    view: ViewConfig = _PLAIN_VIEW
    scratch: Path | None = None


def sample_descriptors(images: Sequence[LabelledImage], settings: SampleSettings) -> Sample:
    """About as many descriptors of each image as of any other, near-zero ones left out."""
    count = descriptors_per_image(len(images), settings)

    def draw(number: int) -> Float32Array | UnreadableImage:
        return draw_descriptors(images[number].path, number, count, settings)

    readable: list[LabelledImage] = []
    counts: list[int] = []
    unreadable: list[UnreadableImage] = []

    def parts() -> Iterator[Float32Array]:
        drawn = map_ordered(draw, range(len(images)), "descriptors")
        for source, part in zip(images, drawn, strict=True):
            if isinstance(part, UnreadableImage):
                unreadable.append(part)
            else:
                readable.append(source)
                counts.append(len(part))
                yield part

    descriptors = joined(parts(), settings.scratch)
    if not len(descriptors):
        raise DataError("no descriptors: not one of the images is readable and shows anything")
    image_ids = np.repeat(np.arange(len(readable), dtype=np.int32), counts)
    return Sample(descriptors, image_ids, tuple(readable), tuple(unreadable))


def descriptors_per_image(n_images: int, settings: SampleSettings) -> int:
    """How many descriptors are drawn from each of so many images, if it has them."""
    return math.ceil(settings.samples / max(1, n_images))


def draw_descriptors(
    path: Path, number: int, count: int, settings: SampleSettings
) -> Float32Array | UnreadableImage:
    """`count` descriptors of an image, the same for the same number whatever else is drawn."""
    try:
        grid = description.describe(_picture(path, settings), settings.view)
    except (ImageError, OSError) as error:
        return UnreadableImage(path, str(error))
    rng = np.random.default_rng([settings.seed, number])
    return _draw(grid.reshape(-1, grid.shape[2]), count, rng)


def _picture(path: Path, settings: SampleSettings) -> Picture:
    data = path.read_bytes()
    if settings.view.descriptor == "colour":
        return image.decode_picture(data, settings.max_side)
    return Picture(image.decode(data, settings.max_side))


def _draw(descriptors: Float32Array, count: int, rng: np.random.Generator) -> Float32Array:
    strong = np.flatnonzero(norms_of(descriptors) > _NEAR_ZERO)
    places = np.sort(rng.permutation(strong)[:count])
    drawn: Float32Array = descriptors[places]
    return drawn


def log_unreadable(unreadable: Iterable[UnreadableImage]) -> None:
    """Name and count the files that were left out."""
    files = list(unreadable)
    for file in files:
        logger.warning("left out %s: %s", printable(file.path), printable(file.reason))
    if files:
        logger.warning("%d unreadable file%s left out", len(files), "" if len(files) == 1 else "s")
