"""Products with the features of many images, which are in a file: chunk by chunk.

The matrix has a row for each image, the pooled vector of weighted blocks scaled to unit length
and a one, the constant feature whose weight is the bias. A chunk's integers are multiplied as
they are, and scales go to the smaller factor of each product. Parts of all products are the same
on any number of cores, and so are their sums.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np

from service.engine.arrays import Float32Array
from trainer.data.vectors import StoredVectors
from trainer.parallel import n_threads, progress_bar

__all__ = ["CHUNK_ROWS", "Chunk", "FeatureMatrix"]

CHUNK_ROWS = 512
"""Images that are in memory at a time."""

# Features of a part that one thread multiplies.
_TILE = 4096


@dataclass(frozen=True)
class Chunk:
    """Some rows of the matrix, in parts (rows, any) side by side with factors (rows,) for each."""

    rows: slice
    tiles: tuple[Float32Array, ...]
    factors: tuple[Float32Array, ...]
    places: tuple[slice, ...]
    executor: ThreadPoolExecutor

    def scores(self, weights: Float32Array) -> Float32Array:
        """The product (rows, n_labels) with weights (n_features + 1, n_labels)."""

        def product(number: int) -> Float32Array:
            scores: Float32Array = self.tiles[number] @ weights[self.places[number]]
            scores *= self.factors[number][:, np.newaxis]
            return scores

        total = np.tile(weights[-1], (len(self.tiles[0]), 1))
        for part in self.executor.map(product, range(len(self.tiles))):
            total += part
        return total

    def add_to(self, weights: Float32Array, coefficients: Float32Array) -> None:
        """Add the rows, each times its coefficients (rows, n_labels), to weights."""

        def add(number: int) -> None:
            scaled = self.factors[number][:, np.newaxis] * coefficients
            weights[self.places[number]] += self.tiles[number].T @ scaled

        list(self.executor.map(add, range(len(self.tiles))))
        weights[-1] += coefficients.sum(axis=0)

    def gram(self) -> Float32Array:
        """Inner products (rows, rows), the constant feature's among them."""

        def product(number: int) -> Float32Array:
            factors = self.factors[number]
            gram: Float32Array = self.tiles[number] @ self.tiles[number].T
            gram *= factors[:, np.newaxis] * factors
            return gram

        total = np.ones((len(self.tiles[0]),) * 2, np.float32)
        for part in self.executor.map(product, range(len(self.tiles))):
            total += part
        return total


class FeatureMatrix:
    """The matrix (n, n_features + 1) of the vectors in a file, whose blocks have these weights.

    To be closed at the end, which leaves the file alone.
    """

    def __init__(self, file: StoredVectors, weights: Sequence[float]) -> None:
        self._file = file
        shares = np.asarray(weights, np.float32) / np.float32(np.linalg.norm(weights))
        factors = file.scales * shares
        self._tiles = [
            (slice(start, min(start + _TILE, place.stop)), factors[:, number])
            for number, place in enumerate(file.slices)
            for start in range(place.start, place.stop, _TILE)
        ]
        self._executor = ThreadPoolExecutor(n_threads())
        self._reader = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        self._reader.shutdown()

    @property
    def shape(self) -> tuple[int, int]:
        """Images, and features with the constant one."""
        return len(self._file), self._file.n_features + 1

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The threads that multiply; idle between products."""
        return self._executor

    @property
    def n_chunks(self) -> int:
        """How many chunks there are."""
        return -(-len(self._file) // CHUNK_ROWS)

    def chunks(self, order: Sequence[int] | None = None) -> Iterator[Chunk]:
        """The chunks of these numbers, or all; the next one is read meanwhile."""
        numbers = list(range(self.n_chunks) if order is None else order)
        ahead: Future[Chunk] | None = None
        with progress_bar(total=len(numbers), desc="pass over the file") as bar:
            for number, following in zip(numbers, [*numbers[1:], None], strict=True):
                chunk = self._chunk(number) if ahead is None else ahead.result()
                ahead = None if following is None else self._reader.submit(self._chunk, following)
                yield chunk
                bar.update()

    def scores(self, weights: Float32Array) -> Float32Array:
        """The product (n, n_labels) with weights (n_features + 1, n_labels)."""
        return np.concatenate([chunk.scores(weights) for chunk in self.chunks()])

    def transposed(self, coefficients: Float32Array) -> Float32Array:
        """The sum (n_features + 1, n_labels) of all rows times coefficients (n, n_labels)."""
        total = np.zeros((self.shape[1], coefficients.shape[1]), np.float32)
        for chunk in self.chunks():
            chunk.add_to(total, coefficients[chunk.rows])
        return total

    def _chunk(self, number: int) -> Chunk:
        rows = slice(number * CHUNK_ROWS, min((number + 1) * CHUNK_ROWS, len(self._file)))
        integers = self._file.read(rows)
        places = tuple(place for place, _ in self._tiles)
        return Chunk(
            rows,
            tuple(integers[:, place].astype(np.float32) for place in places),
            tuple(factors[rows] for _, factors in self._tiles),
            places,
            self._executor,
        )
