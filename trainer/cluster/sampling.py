"""Descriptors that are drawn by the workers and stay there, a part for every few images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from service.engine.arrays import Float32Array
from service.engine.config import DESCRIPTOR_WIDTH
from trainer.cluster.tasks import Tasks, spans
from trainer.data.dataset import LabelledImage
from trainer.data.sampling import (
    SampleSettings,
    UnreadableImage,
    descriptors_per_image,
    draw_descriptors,
)
from trainer.errors import DataError

if TYPE_CHECKING:
    from distributed import Future

__all__ = ["MOST_PARTS", "ScatteredSample", "draw_sample"]

# Images of a part, unless that were more parts than a scheduler likes: each of them has a task
# for every subtree.
_IMAGES = 96
MOST_PARTS = 256


@dataclass(frozen=True)
class ScatteredSample:
    """Descriptors in parts (any, d) on the workers, and the images that they came from.

    `images` are those that could be read, and `sizes` how many descriptors each part has.
    """

    parts: list["Future"]
    sizes: tuple[int, ...]
    images: tuple[LabelledImage, ...] = ()
    unreadable: tuple[UnreadableImage, ...] = ()

    @property
    def n_descriptors(self) -> int:
        """Descriptors of all parts."""
        return sum(self.sizes)

    def some(self, tasks: Tasks, step: int) -> Float32Array:
        """Every so many-th descriptor of all, the first among them (any, d)."""
        starts = np.cumsum([0, *self.sizes[:-1]])
        firsts = [int(-start % step) for start in starts]
        taken = tasks.map(_every, self.parts, firsts, [step] * len(firsts))
        return np.concatenate(list(tasks.results(taken, "descriptors for the top of the tree")))


@dataclass(frozen=True)
class _Drawn:
    """Descriptors of some images, and why others, by their numbers, could not be read."""

    descriptors: Float32Array
    unreadable: dict[int, str]


def draw_sample(
    tasks: Tasks, images: Sequence[LabelledImage], settings: SampleSettings
) -> ScatteredSample:
    """The descriptors that `sample_descriptors` draws on one machine."""
    count = descriptors_per_image(len(images), settings)
    paths = [image.path.absolute() for image in images]
    parts = spans(len(images), _IMAGES, MOST_PARTS)
    numbered = [(part.start, paths[part.start : part.stop]) for part in parts]
    drawn = tasks.each(_draw, numbered, count, settings)
    found = list(tasks.results(tasks.each(_summary, drawn), "descriptors"))
    unreadable = {number: reason for _, reasons in found for number, reason in reasons.items()}
    sizes = tuple(size for size, _ in found)
    if not sum(sizes):
        raise DataError("no descriptors: not one of the images is readable and shows anything")
    return ScatteredSample(
        tasks.each(_descriptors, drawn),
        sizes,
        tuple(image for number, image in enumerate(images) if number not in unreadable),
        tuple(UnreadableImage(images[n].path, unreadable[n]) for n in sorted(unreadable)),
    )


def _draw(numbered: tuple[int, Sequence[Path]], count: int, settings: SampleSettings) -> _Drawn:
    """Descriptors of images, of which the first has this number."""
    first, paths = numbered
    parts, unreadable = [np.empty((0, DESCRIPTOR_WIDTH), np.float32)], {}
    for number, path in enumerate(paths, first):
        part = draw_descriptors(path, number, count, settings)
        if isinstance(part, UnreadableImage):
            unreadable[number] = part.reason
        else:
            parts.append(part)
    return _Drawn(np.concatenate(parts), unreadable)


def _summary(drawn: _Drawn) -> tuple[int, dict[int, str]]:
    return len(drawn.descriptors), drawn.unreadable


def _descriptors(drawn: _Drawn) -> Float32Array:
    return drawn.descriptors


def _every(descriptors: Float32Array, first: int, step: int) -> Float32Array:
    return descriptors[first::step].copy()
