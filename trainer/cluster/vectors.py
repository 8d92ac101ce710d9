"""Pooled vectors that stay with the workers, in strips of features that have all images.

Workers pool a few images each; what they have of a strip comes together on one of them. A strip
then adds its share to the inner products of all images, as it does on one machine, and has all
that its part of the classifier's weights is made of. What the driver gets is of the size of images
by images, of which there are few enough for Gram matrices, or of the classifier.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from service.engine import FeatureExtractor
from service.engine.arrays import Float32Array
from trainer.cluster.tasks import Tasks, gathered, spans
from trainer.data.dataset import LabelledImage
from trainer.learn.grams import block_weights, column_slices, gram_matrix
from trainer.learn.held_out import Folds, Grams
from trainer.metrics import Labels
from trainer.vectors import Pooling

if TYPE_CHECKING:
    from distributed import Future

__all__ = ["GramSolvers", "ScatteredVectors"]

# Images that a task pools, at least; how many tasks there are at most; and features of a strip.
_IMAGES = 48
_MOST_PARTS = 128
_STRIP = 8192


@dataclass(frozen=True)
class ScatteredVectors:
    """Vectors of the images in strips (n, any) of each block, and of their copies once needed."""

    tasks: Tasks
    extractor: FeatureExtractor
    images: Sequence[LabelledImage]
    strips: tuple[tuple["Future", ...], ...]

    @classmethod
    def pooled(
        cls, tasks: Tasks, extractor: FeatureExtractor, images: Sequence[LabelledImage]
    ) -> "ScatteredVectors":
        """The vectors that an extractor makes of these images."""
        strips = _pooled_strips(tasks, extractor, images, mirrored=False)
        return cls(tasks, extractor, images, strips)

    def only(self, extractor: FeatureExtractor, blocks: Sequence[int]) -> "ScatteredVectors":
        """Some of the blocks, which are those of another extractor."""
        strips = tuple(self.strips[each] for each in blocks)
        return ScatteredVectors(self.tasks, extractor, self.images, strips)

    def grams(self) -> Grams:
        """Inner products of the images, which the workers keep too."""
        return self._grams([[(strip,) for strip in own] for own in self.strips])

    def grams_with_copies(self, places: Labels | None = None) -> Grams:
        """Those of all images, or of some, and then of their copies."""
        if places is None:
            both = zip(self.strips, self._copies, strict=True)
        else:
            images = [self.images[place] for place in places]
            copies = _pooled_strips(self.tasks, self.extractor, images, mirrored=True)
            some = tuple(tuple(self.tasks.each(_rows, own, places)) for own in self.strips)
            both = zip(some, copies, strict=True)
        return self._grams([list(zip(*own, strict=True)) for own in both])

    def block_weights(
        self, coefficients: Float32Array, weights: Sequence[float]
    ) -> list[Float32Array]:
        """See `grams.block_weights`."""
        has_copies = len(coefficients) > len(self.images)
        given = self.tasks.given(coefficients)
        futures = []
        for number, (own, weight) in enumerate(zip(self.strips, weights, strict=True)):
            pairs = zip(own, self._copies[number], strict=True) if has_copies else zip(own)
            futures.append(self.tasks.each(_weights, list(pairs), given, weight))
        found = self.tasks.results([each for own in futures for each in own], "weights")
        return [np.concatenate([next(found) for _ in own]) for own in futures]

    @cached_property
    def _copies(self) -> tuple[tuple["Future", ...], ...]:
        return _pooled_strips(self.tasks, self.extractor, self.images, mirrored=True)

    def _grams(self, strips: Sequence[Sequence[tuple["Future", ...]]]) -> Grams:
        """Of strips of each block, each of one or of several arrays that follow one another."""
        totals = tuple(self.tasks.total(self.tasks.each(_gram, own)) for own in strips)
        # One after the other: they are large, and come by way of the scheduler.
        found = tuple(self.tasks.result(total, "inner products") for total in totals)
        return Grams(found, GramSolvers(self.tasks, totals))


@dataclass(frozen=True)
class GramSolvers:
    """The workers, who have these Gram matrices, solve for folds."""

    tasks: Tasks
    grams: tuple["Future", ...]

    def map(self, function: Any, folds: Folds, items: Sequence[Any], title: str) -> Iterator[Any]:
        """The function of the folds and each item, in order."""
        futures = self.tasks.each(_solve, items, function, _bare(folds), self.grams)
        return self.tasks.results(futures, title)

    def kept(self, function: Any, folds: Folds, item: Any) -> Any:
        """The future result of the function, which becomes the result in items of `map`."""
        return self.tasks.submit(_solve, item, function, _bare(folds), self.grams)


def _bare(folds: Folds) -> Folds:
    """The folds without what workers have; of what was kept, items have what they need."""
    return replace(folds, images=replace(folds.images, grams=(), solvers=None))


def _pooled_strips(
    tasks: Tasks, extractor: FeatureExtractor, images: Sequence[LabelledImage], *, mirrored: bool
) -> tuple[tuple["Future", ...], ...]:
    """Strips (n, any) of all blocks, on the workers when this returns."""
    given, pool = tasks.given(extractor), partial(_pool, mirrored=mirrored)
    paths = [image.path.absolute() for image in images]
    places = [_strips_of(at) for at in extractor.config.slices]
    flat = [place for own in places for place in own]
    spanned = spans(len(images), _IMAGES, _MOST_PARTS)
    own = [paths[part.start : part.stop] for part in spanned]
    parts = tasks.each(pool, own, given, flat)
    joined = iter(tasks.each(np.concatenate, gathered(tasks, parts, len(flat))))
    for _ in tasks.results(tasks.each(_count, parts), "pooled vectors"):
        pass
    return tuple(tuple(next(joined) for _ in own) for own in places)


def _strips_of(block: slice) -> list[slice]:
    """Features of a block, some at a time."""
    starts = range(block.start, block.stop, _STRIP)
    return [slice(start, min(start + _STRIP, block.stop)) for start in starts]


# What workers run.


def _pool(
    paths: Sequence[Path], extractor: FeatureExtractor, strips: Sequence[slice], *, mirrored: bool
) -> list[Float32Array]:
    """The strips of some images."""
    pooling = Pooling(extractor)
    parts = [np.empty((len(paths), at.stop - at.start), np.float32) for at in strips]
    for row, path in enumerate(paths):
        vector = pooling.vector(path.read_bytes(), mirrored=mirrored)
        for part, at in zip(parts, strips, strict=True):
            part[row] = vector[at]
    return parts


def _count(parts: list[Float32Array]) -> int:
    return len(parts[0])


def _rows(strip: Float32Array, places: Labels) -> Float32Array:
    rows: Float32Array = strip[places]
    return rows


def _gram(arrays: Sequence[Float32Array]) -> Float32Array:
    return gram_matrix(column_slices(*arrays))


def _weights(
    arrays: Sequence[Float32Array], coefficients: Float32Array, weight: float
) -> Float32Array:
    return block_weights(column_slices(*arrays), coefficients, weight)


def _solve(item: Any, function: Any, folds: Folds, grams: tuple[Float32Array, ...]) -> Any:
    return function(replace(folds, images=replace(folds.images, grams=grams)), item)
