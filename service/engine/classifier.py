"""Linear classifier: a pooled vector to scores.

Weights are 8-bit integers with one scale for each block and label, because reading them is
bound by memory, and because they are most of a bundle.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from service.engine.arrays import (
    CACHE_LINE,
    Float32Array,
    Int8Array,
    Int64Array,
    Tensors,
    UInt32Array,
    aligned_empty,
    frozen,
)
from service.engine.config import EngineConfig, weight_columns
from service.engine.kernels.classifier import IS_POOLED, Scoring, fill_scores, take_weights
from service.engine.kernels.strips import set_counter
from service.engine.thread_memory import kept_by_thread

__all__ = ["LinearClassifier", "SharedScores"]

# What the largest weight of a block and label is in fixed point.
_LARGEST = 2**7 - 1

# Features, at the most, whose products are added up at a time. With 2048, one thread took a
# twelfth longer: the first rows of a part are not asked for ahead.
_PART = 6144


@dataclass(frozen=True)
class LinearClassifier:
    """Weights (n_features, columns) in fixed point, scales (n_blocks, n_labels), bias (n_labels,).

    A weight is its integer times the scale of its block and label; `slices` say which rows
    belong to which block. Columns after those of the labels are of no account. All are
    read-only.
    """

    padded_weights: Int8Array
    scales: Float32Array
    bias: Float32Array
    slices: tuple[slice, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "padded_weights", frozen(self.padded_weights))
        object.__setattr__(self, "scales", frozen(self.scales))
        object.__setattr__(self, "bias", frozen(self.bias))

    @classmethod
    def from_floats(
        cls, weights: Float32Array, bias: Float32Array, slices: tuple[slice, ...]
    ) -> "LinearClassifier":
        """The classifier with these weights, each rounded by at most half a scale."""
        n_features, n_labels = weights.shape
        integers = np.zeros((n_features, weight_columns(n_labels)), np.int8)
        scales = np.empty((len(slices), n_labels), np.float32)
        for number, rows in enumerate(slices):
            integers[rows, :n_labels], scales[number] = _rounded(weights[rows])
        return cls(integers, scales, bias, slices)

    @classmethod
    def from_tensors(cls, config: EngineConfig, tensors: Tensors) -> "LinearClassifier":
        """The classifier that a bundle's tensors hold; nothing is copied."""
        return cls(
            tensors["classifier_weights"],
            tensors["classifier_scales"],
            tensors["classifier_bias"],
            config.slices,
        )

    def tensors(self) -> Tensors:
        """The tensors that a bundle stores of the classifier, by name."""
        return {
            "classifier_weights": self.padded_weights,
            "classifier_scales": self.scales,
            "classifier_bias": self.bias,
        }

    @property
    def weights(self) -> Int8Array:
        """The integers (n_features, n_labels)."""
        return self.padded_weights[:, : len(self.bias)]

    def weights_of(self, label: int, pooled: Float32Array) -> Float32Array:
        """The weights (n_features,) of one label, zero where the pooled vector is zero.

        Every row that is read is a fetch from memory.
        """
        weights = np.empty(len(pooled), np.float32)
        for number, rows in enumerate(self.slices):
            part, scale = self.padded_weights[rows], self.scales[number, label]
            take_weights(frozen(pooled[rows]), part, label, scale, weights[rows])
        return weights

    def scores(self, pooled: Float32Array) -> Float32Array:
        """Scores (n_labels,) of a pooled vector (n_features,)."""
        return self.begin(pooled).finish()

    def begin(self, pooled: Float32Array) -> "SharedScores":
        """The scores of a pooled vector that is filled later, for threads that may help.

        A thread is to finish them before it begins with others: they share its memory.
        """
        return SharedScores(self, frozen(pooled))

    @cached_property
    def parts(self) -> tuple[Int64Array, Int64Array]:
        """Where parts of blocks end, each after the one before, and which blocks they are of."""
        ends: list[int] = []
        blocks: list[int] = []
        for block, rows in enumerate(self.slices):
            begin, end, _ = rows.indices(len(self.padded_weights))
            count = -(-(end - begin) // _PART)
            ends.extend(begin + (end - begin) * part // count for part in range(1, count + 1))
            blocks.extend([block] * count)
        return frozen(np.array(ends, np.int64)), frozen(np.array(blocks, np.int64))


class SharedScores:
    """The scores of one pooled vector, which several threads may add up when it is filled."""

    def __init__(self, classifier: LinearClassifier, pooled: Float32Array) -> None:
        weights, (ends, blocks) = classifier.padded_weights, classifier.parts
        room = _room(len(pooled), weights.shape[1], len(ends))
        self.scoring = Scoring(pooled, weights, ends, *room, np.zeros(3, np.int64))
        self._scores = np.empty(len(classifier.bias), np.float32)
        self._rest = blocks, classifier.scales, classifier.bias, self._scores

    def finish(self) -> Float32Array:
        """The scores (n_labels,); the pooled vector is filled now."""
        fill_scores(self.scoring, *self._rest, False)  # noqa: FBT003  # kernels have no keywords
        return self._scores

    def help(self) -> None:
        """Wait until the pooled vector is filled, for a while, and add up some parts."""
        fill_scores(self.scoring, *self._rest, True)  # noqa: FBT003

    def give_up(self) -> None:
        """Tell those who wait that no vector will come."""
        set_counter(self.scoring.counters, IS_POOLED, -1)


@kept_by_thread
def _room(n_features: int, columns: int, parts: int) -> tuple[UInt32Array, Float32Array]:
    """What is written while scores are added up, by the thread that asks and those that help."""
    # Two threads that write the same cache line took longer than one.
    in_line = CACHE_LINE // 4
    sums = aligned_empty((parts, columns + -columns % in_line), np.float32)
    return np.empty(n_features, np.uint32), sums


def _rounded(weights: Float32Array) -> tuple[Int8Array, Float32Array]:
    """Weights (n, n_labels) of one block as integers, and the scales (n_labels,) of these."""
    largest = np.maximum(weights.max(axis=0, initial=0), -weights.min(axis=0, initial=0))
    scales = (largest / _LARGEST).astype(np.float32)
    integers = np.rint(weights / np.where(scales == 0, 1, scales))
    # A scale of few bits, below 10⁻³⁸, may be too small for its largest weight.
    np.clip(integers, -_LARGEST, _LARGEST, out=integers)
    return integers.astype(np.int8), scales
