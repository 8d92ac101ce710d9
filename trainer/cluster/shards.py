"""Pooled vectors of many images: files that workers write into a folder which all can read.

A file has the rows of one chunk of the matrix, in integers. Products with the whole matrix, which
are most of the passes over it, are made by the workers, each over some of the files, by what makes
them on one machine; the driver gets scores, and sums of the size of the classifier. Only the few
passes of coordinate descent, which go from chunk to chunk, read the files in turns on the driver.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from service.engine import FeatureExtractor
from service.engine.arrays import Float32Array, Int8Array
from trainer.cluster.tasks import Tasks, spans
from trainer.data.dataset import LabelledImage
from trainer.data.duplicates import Sketcher
from trainer.data.files import replacing
from trainer.data.vectors import quantised
from trainer.errors import DataError
from trainer.learn.feature_matrix import CHUNK_ROWS, FeatureMatrix
from trainer.learn.held_out import Mask
from trainer.stored_vectors import SKETCH_WIDTH
from trainer.vectors import Pooling

__all__ = ["ScatteredMatrix", "ShardFiles", "StoredShards"]

# Files that a task multiplies, at least, and tasks of a pass at most: each has a sum of the size
# of the classifier.
_FILES = 2
_MOST_TASKS = 32


@dataclass(frozen=True)
class ShardFiles:
    """Files of one chunk each, by their numbers, with the scales (n, n_blocks) of their rows."""

    folder: Path
    slices: tuple[slice, ...]
    numbers: range
    scales: Float32Array

    @property
    def n_features(self) -> int:
        """Features of a vector."""
        return int(self.slices[-1].stop)

    def __len__(self) -> int:
        return len(self.scales)

    def read(self, rows: slice) -> Int8Array:
        """The integers (rows, n_features) of a chunk."""
        path = _shard(self.folder, self.numbers[rows.start // CHUNK_ROWS])
        try:
            integers = np.fromfile(path, np.int8)
        except OSError as error:
            raise DataError(f"the pooled vectors in {path} cannot be read: {error}") from error
        expected = (rows.stop - rows.start) * self.n_features
        if len(integers) != expected:
            raise DataError(f"{path} has {len(integers)} bytes, expected {expected}")
        return integers.reshape(-1, self.n_features)

    def some(self, part: range) -> "ShardFiles":
        """The files at these places."""
        rows = _rows(part)
        return ShardFiles(
            self.folder, self.slices, self.numbers[part.start : part.stop], self.scales[rows]
        )


class ScatteredMatrix(FeatureMatrix):
    """The matrix of vectors in files, with which workers multiply."""

    def __init__(self, tasks: Tasks, files: ShardFiles, weights: Sequence[float]) -> None:
        super().__init__(files, weights)
        self._tasks, self._files, self._weights = tasks, files, tuple(weights)

    def scores(self, weights: Float32Array) -> Float32Array:
        """The product (n, n_labels) with weights (n_features + 1, n_labels)."""
        given = self._tasks.given(weights)
        futures = self._tasks.each(_scores, self._parts, self._weights, given)
        return np.concatenate(list(self._tasks.results(futures, "pass over the files")))

    def transposed(self, coefficients: Float32Array) -> Float32Array:
        """The sum (n_features + 1, n_labels) of all rows times coefficients (n, n_labels)."""
        own = [coefficients[_rows(part)] for part in self._spans]
        weights = [self._weights] * len(own)
        futures = self._tasks.map(_transposed, self._parts, weights, own)
        total: Float32Array = self._tasks.result(self._tasks.total(futures), "pass over the files")
        return total

    @cached_property
    def _spans(self) -> list[range]:
        return spans(len(self._files.numbers), _FILES, _MOST_TASKS)

    @property
    def _parts(self) -> list[ShardFiles]:
        return [self._files.some(part) for part in self._spans]


@dataclass(frozen=True)
class StoredShards:
    """Vectors in files, and their sketches."""

    tasks: Tasks
    files: ShardFiles
    sketches: Float32Array

    @classmethod
    @contextmanager
    def stored(
        cls,
        tasks: Tasks,
        extractor: FeatureExtractor,
        images: Sequence[LabelledImage],
        are_mirrored: Mask,
        parent: Path,
    ) -> Iterator["StoredShards"]:
        """Vectors of images in a new folder, gone at the end."""
        with tempfile.TemporaryDirectory(prefix="leafcode-", dir=parent) as name:
            folder, given = Path(name), tasks.given(extractor)
            numbers = range(-(-len(images) // CHUNK_ROWS))
            futures = []
            for number in numbers:
                rows = _rows(range(number, number + 1))
                paths = [image.path.absolute() for image in images[rows]]
                items = list(zip(paths, are_mirrored[rows].tolist(), strict=True))
                futures.append(tasks.submit(_write, given, items, _shard(folder, number)))
            found = list(tasks.results(futures, "pooled vectors"))
            scales, sketches = (np.concatenate(each) for each in zip(*found, strict=True))
            files = ShardFiles(folder, tuple(extractor.config.slices), numbers, scales)
            yield cls(tasks, files, sketches)

    def matrix(self, weights: Sequence[float]) -> FeatureMatrix:
        """The matrix of the vectors whose blocks have these weights."""
        return ScatteredMatrix(self.tasks, self.files, weights)


def _shard(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.vectors"


def _rows(files: range) -> slice:
    return slice(files.start * CHUNK_ROWS, files.stop * CHUNK_ROWS)


# What workers run.


def _write(
    extractor: FeatureExtractor, items: Sequence[tuple[Path, bool]], target: Path
) -> tuple[Float32Array, Float32Array]:
    """Write the vectors of some images; their scales (n, n_blocks) and sketches."""
    pooling, slices = Pooling(extractor), extractor.config.slices
    sketch = Sketcher(extractor.config.n_features, SKETCH_WIDTH)
    scales, sketches = [], []
    with replacing(target) as file:
        for path, is_mirrored in items:
            vector = pooling.vector(path.read_bytes(), mirrored=is_mirrored)
            integers, own_scales = quantised(vector, slices)
            file.write(integers.data)
            scales.append(own_scales)
            sketches.append(sketch(vector))
    return np.stack(scales), np.stack(sketches)


def _scores(files: ShardFiles, own: Sequence[float], weights: Float32Array) -> Float32Array:
    with FeatureMatrix(files, own) as matrix:
        return matrix.scores(weights)


def _transposed(files: ShardFiles, own: Sequence[float], coefficients: Float32Array) -> Any:
    with FeatureMatrix(files, own) as matrix:
        return matrix.transposed(coefficients)
