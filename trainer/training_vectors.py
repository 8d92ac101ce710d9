"""Pooled vectors of the training images, as a classifier needs them, wherever they are.

It asks for inner products, and for weights in the end: `LocalVectors` have all vectors in memory,
`trainer.cluster` leaves them with the workers that made them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from service.engine import FeatureExtractor
from service.engine.arrays import Float32Array
from trainer.data.dataset import LabelledImage
from trainer.learn.grams import block_weights, column_slices, gram_matrix
from trainer.learn.held_out import Grams, Mask
from trainer.metrics import Labels
from trainer.vectors import pooled_vectors

__all__ = ["LocalVectors", "Pool", "TrainingVectors"]


class TrainingVectors(Protocol):
    """Vectors of n images, every block of unit length, and of a mirrored copy of each."""

    def grams(self) -> Grams:
        """Inner products of the images."""

    def grams_with_copies(self, places: Labels | None = None) -> Grams:
        """Those of all images, or of some, and then of their copies."""

    def block_weights(
        self, coefficients: Float32Array, weights: Sequence[float]
    ) -> list[Float32Array]:
        """See `grams.block_weights`; coefficients (n or 2n, n_labels) are of copies too, or not."""

    def only(self, extractor: FeatureExtractor, blocks: Sequence[int]) -> "TrainingVectors":
        """Some of the blocks, which are those of another extractor."""


Pool = Callable[[FeatureExtractor, Sequence[LabelledImage]], TrainingVectors]


@dataclass(frozen=True)
class LocalVectors:
    """Vectors in memory: an array (n, n_features) for each block of the extractor."""

    extractor: FeatureExtractor
    images: Sequence[LabelledImage]
    blocks: tuple[Float32Array, ...]

    @classmethod
    def pooled(cls, extractor: FeatureExtractor, images: Sequence[LabelledImage]) -> "LocalVectors":
        """The vectors that an extractor makes of these images."""
        pooled = np.empty((len(images), extractor.config.n_features), np.float32)
        for row, vector in enumerate(pooled_vectors(extractor, images)):
            pooled[row] = vector
        return cls(extractor, images, tuple(pooled[:, at] for at in extractor.config.slices))

    def only(self, extractor: FeatureExtractor, blocks: Sequence[int]) -> "LocalVectors":
        """Some of the blocks, which are those of another extractor."""
        return LocalVectors(extractor, self.images, tuple(self.blocks[each] for each in blocks))

    def grams(self) -> Grams:
        """Inner products of the images."""
        return Grams(tuple(gram_matrix(column_slices(block)) for block in self.blocks))

    def grams_with_copies(self, places: Labels | None = None) -> Grams:
        """Those of all images, or of some, and then of their copies, which are pooled once."""
        if places is None:
            self._pool(np.arange(len(self.images)))
            pairs = zip(self.blocks, self.copies, strict=True)
        else:
            self._pool(places)
            originals = (block[places] for block in self.blocks)
            pairs = zip(originals, (block[places] for block in self.copies), strict=True)
        return Grams(tuple(gram_matrix(column_slices(*pair)) for pair in pairs))

    def block_weights(
        self, coefficients: Float32Array, weights: Sequence[float]
    ) -> list[Float32Array]:
        """See `grams.block_weights`."""
        has_copies = len(coefficients) > len(self.images)
        arrays = zip(self.blocks, self.copies, strict=True) if has_copies else zip(self.blocks)
        return [
            block_weights(column_slices(*own), coefficients, weight)
            for own, weight in zip(arrays, weights, strict=True)
        ]

    @property
    def copies(self) -> tuple[Float32Array, ...]:
        """Vectors of the mirrored copies, an array (n, n_features) for each block."""
        return tuple(self._copies[:, at] for at in self.extractor.config.slices)

    @cached_property
    def are_pooled(self) -> Mask:
        """Which copies (n,) have vectors."""
        return np.zeros(len(self.images), np.bool_)

    @cached_property
    def _copies(self) -> Float32Array:
        """All copies' vectors (n, n_features); nothing there until they are asked for."""
        return np.empty((len(self.images), self.extractor.config.n_features), np.float32)

    def _pool(self, places: Labels) -> None:
        """Fill the rows of these copies, if they are not filled yet."""
        new = places[~self.are_pooled[places]]
        images = [self.images[place] for place in new]
        vectors = pooled_vectors(self.extractor, images, [True] * len(images))
        for place, vector in zip(new, vectors, strict=True):
            self._copies[place] = vector
        self.are_pooled[new] = True
