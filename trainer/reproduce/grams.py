"""Gram matrices of pooled vectors: all that a classifier and its splits need of them.

The pooled vectors of Caltech 101 with 8192 atoms are 6 GB, their Gram matrix is 0.3. So
only those of the columns are held, and the others pass by in blocks.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from service.engine import ImageError
from service.engine.arrays import Float32Array
from trainer.errors import DataError
from trainer.parallel import map_ordered, one_blas_thread
from trainer.reproduce.features import Features

__all__ = ["gram_matrices", "within_memory"]

Places = npt.NDArray[np.int64]

# Images that one thread describes and multiplies at a time.
_BLOCK = 128
# Bytes of pooled vectors to hold for the columns, unless one cell alone needs more.
_MOST_HELD = 4 * 2**30


def gram_matrices(features: Features, paths: Sequence[Path], columns: Places) -> list[Float32Array]:
    """For each cell the inner products (n, columns) of all images with those at `columns`."""
    held = [np.empty((len(columns), width), np.float32) for width in features.widths]
    grams = [np.empty((len(paths), len(columns)), np.float32) for _ in held]

    def hold(rows: slice) -> None:
        vectors = [_pooled(features, paths[place]) for place in columns[rows]]
        for matrix, parts in zip(held, zip(*vectors, strict=True), strict=True):
            matrix[rows] = parts

    def multiply_held(rows: slice) -> None:
        for gram, matrix in zip(grams, held, strict=True):  # the other half is its mirror image
            gram[columns[rows], : rows.stop] = matrix[rows] @ matrix[: rows.stop].T

    def multiply_others(places: Places) -> None:
        vectors = [_pooled(features, paths[place]) for place in places]
        for gram, matrix, parts in zip(grams, held, zip(*vectors, strict=True), strict=True):
            gram[places] = np.stack(parts) @ matrix.T

    others = np.setdiff1d(np.arange(len(paths)), columns)
    with one_blas_thread():  # blocks are multiplied side by side
        _run(map_ordered(hold, _slices(len(columns)), "pooled vectors"))
        _run(map_ordered(multiply_held, _slices(len(columns)), "inner products"))
        blocks = [others[rows] for rows in _slices(len(others))]
        _run(map_ordered(multiply_others, blocks, "other images"))
    for gram in grams:
        lower = np.tril(gram[columns])
        gram[columns] = lower + np.tril(lower, -1).T
    return grams


def within_memory(widths: Sequence[int], n_columns: int) -> Iterator[slice]:
    """Runs of pooled vectors of these widths that can be held together for the columns."""
    begin, held = 0, 0
    for place, width in enumerate(widths):
        size = width * n_columns * np.dtype(np.float32).itemsize
        if place > begin and held + size > _MOST_HELD:
            yield slice(begin, place)
            begin, held = place, 0
        held += size
    if widths:
        yield slice(begin, len(widths))


def _pooled(features: Features, path: Path) -> tuple[Float32Array, ...]:
    try:
        return features.pooled(path.read_bytes())
    except (ImageError, OSError) as error:
        raise DataError(f"{path} cannot be measured: {error}") from error


def _slices(count: int) -> list[slice]:
    return [slice(begin, min(begin + _BLOCK, count)) for begin in range(0, count, _BLOCK)]


def _run(work: Iterator[None]) -> None:
    deque(work, maxlen=0)
