"""Gram matrices of the pooled vector's blocks, in which classifiers are fitted.

There are far fewer images than features, and a classifier of the images' inner products is the
same as one of their features. The inner products of a weighted list of blocks are the sum of
the blocks' own, so that weights between blocks are tried without a pooled vector, and only one
part of one block needs to be in memory at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from trainer.parallel import n_threads

__all__ = ["DualClassifier", "block_weights", "column_slices", "gram_matrix", "weighted_kernel"]

IndexArray = npt.NDArray[np.intp]

# Columns of a slice, and rows and columns of a tile that one thread adds up.
_SLICE = 4096
_TILE = 512


@dataclass(frozen=True)
class DualClassifier:
    """Coefficients (n, n_labels) of the training images and bias (n_labels,)."""

    coefficients: Float64Array
    bias: Float64Array

    def scores(self, kernel: Float32Array | Float64Array) -> Float64Array:
        """Scores (m, n_labels) of images that have these inner products (m, n) with the others."""
        scores: Float64Array = kernel @ self.coefficients + self.bias
        return scores


def column_slices(*arrays: Float32Array) -> Iterator[Float32Array]:
    """Parts (n, any), side by side, of arrays (any, n_features) that follow one another.

    An array may be a mapped file. Parts of a single one are views, of several they are copies.
    """
    for start in range(0, arrays[0].shape[1], _SLICE):
        parts = [array[:, start : start + _SLICE] for array in arrays]
        yield parts[0] if len(parts) == 1 else np.concatenate(parts)


def gram_matrix(parts: Iterable[Float32Array]) -> Float32Array:
    """Inner products (n, n) of images whose features come in parts (n, any), one at a time."""
    gram = np.zeros((0, 0), np.float32)
    with ThreadPoolExecutor(n_threads()) as executor:
        for part in parts:
            gram = gram if gram.size else np.zeros((len(part), len(part)), np.float32)
            # Arrays that came from another process may lie anywhere. NumPy multiplies one that is
            # not aligned with itself in another way, whose rounding differs.
            part = np.require(part, requirements="A")  # noqa: PLW2901
            # Tiles are the same on any number of cores, and so are the sums.
            list(executor.map(partial(_add_tile, gram, part), _lower_tiles(len(part))))
    return np.tril(gram) + np.tril(gram, -1).T


def _lower_tiles(n_images: int) -> list[tuple[slice, slice]]:
    """Tiles that cover a square matrix on its diagonal and below."""
    strips = [slice(start, start + _TILE) for start in range(0, n_images, _TILE)]
    return [(rows, columns) for i, rows in enumerate(strips) for columns in strips[: i + 1]]


def _add_tile(gram: Float32Array, part: Float32Array, tile: tuple[slice, slice]) -> None:
    rows, columns = tile
    gram[rows, columns] += part[rows] @ part[columns].T


def weighted_kernel(
    grams: Sequence[Float32Array], weights: Sequence[float], rows: IndexArray, columns: IndexArray
) -> Float32Array:
    """Inner products of pooled vectors of weighted blocks, scaled to unit length.

    `rows` and `columns` are the images in question. Because of the scale, a regularisation means
    the same for any weights.
    """
    total = sum(weight**2 for weight in weights)
    kernel = np.zeros((len(rows), grams[0].shape[1]), np.float32)
    for gram, weight in zip(grams, weights, strict=True):
        if weight:
            kernel += np.float32(weight**2 / total) * gram[rows]
    # Rows are contiguous, so columns are left out once and not for every block.
    chosen: Float32Array = kernel[:, columns]
    return chosen


def block_weights(
    parts: Iterable[Float32Array], coefficients: Float32Array, weight: float
) -> Float32Array:
    """A block's weights (n_features, n_labels) of the pooled vector in which it has a weight.

    `parts` are the training images' features of the block, of unit length, as for its Gram
    matrix; `coefficients` (n, n_labels) are those of the fitted classifier.
    """
    scaled = np.float32(weight) * coefficients
    return np.concatenate([part.T @ scaled for part in parts])
