"""Linear scores that skip the zeros of the pooled vector.

Weights are stored feature-major: the rows of features that are zero, often more
than half of them, are never read. Reading the others is bound by memory: they are
8-bit integers, and asked for ahead.
"""

import numpy as np

from service.engine.arrays import CACHE_LINE, Float32Array, Int8Array, Int64Array, UInt32Array
from service.engine.compiling import kernel, part
from service.engine.kernels.integers import prefetch

__all__ = ["fill_scores", "take_weights"]

_LINE = np.uint64(CACHE_LINE)
_NOTHING = np.float32(0)
_NONE, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
_THREE, _FOUR = np.uint64(3), np.uint64(4)

# Rows that are on their way while four are added: 0.52 ms instead of 0.71 for 2048 atoms and
# 101 labels after 32 MB of other data were read. Distances of 4 to 32 do alike.
_AHEAD = np.uint64(16)


@part
def _add_scores(
    pooled: Float32Array,
    weights: Int8Array,
    begin: int,
    end: int,
    nonzero: UInt32Array,
    scores: Float32Array,
) -> None:
    """Add the products of the features `begin` to `end` with their weights to `scores`."""
    labels = np.uint64(scores.shape[0])
    # Listed without a branch, which zeros at random places would often mispredict: 0.34 ms
    # instead of 0.55 when the weights are in the cache.
    count = _NONE
    for feature in range(np.uint64(begin), np.uint64(end)):
        nonzero[count] = feature
        count += np.uint64(pooled[feature] != 0)
    whole = count - count % _FOUR
    # Four rows at a time, because scores are read and written for each: a fifth faster.
    for i in range(_NONE, whole, _FOUR):
        for j in range(i + _AHEAD, min(i + _AHEAD + _FOUR, count)):
            for offset in range(_NONE, labels, _LINE):
                prefetch(weights, np.uint64(nonzero[j]), offset)
        a, b = np.uint64(nonzero[i]), np.uint64(nonzero[i + _ONE])
        c, d = np.uint64(nonzero[i + _TWO]), np.uint64(nonzero[i + _THREE])
        # Read here: in the loop, the compiler asks each time whether scores overlap them.
        p, q, r, s = pooled[a], pooled[b], pooled[c], pooled[d]
        for label in range(labels):
            scores[label] += (
                p * np.float32(weights[a, label]) + q * np.float32(weights[b, label])
            ) + (r * np.float32(weights[c, label]) + s * np.float32(weights[d, label]))
    for i in range(whole, count):
        row = np.uint64(nonzero[i])
        for label in range(labels):
            scores[label] += pooled[row] * np.float32(weights[row, label])


@kernel
def fill_scores(
    pooled: Float32Array,
    weights: Int8Array,
    ends: Int64Array,
    scales: Float32Array,
    bias: Float32Array,
    nonzero: UInt32Array,
    sums: Float32Array,
    scores: Float32Array,
) -> None:
    """Bias, and pooled·weights block by block, each label's times its scale in the block.

    pooled (f,); weights (f, columns); ends (blocks,) of blocks that follow one another; scales
    (blocks, labels); bias (labels,); nonzero (f,) and sums (columns,) scratch; scores (labels,).
    """
    for label in range(scores.shape[0]):
        scores[label] = bias[label]
    begin = 0
    for block in range(ends.shape[0]):
        sums[:] = 0
        _add_scores(pooled, weights, begin, ends[block], nonzero, sums)
        for label in range(scores.shape[0]):
            scores[label] += scales[block, label] * sums[label]
        begin = ends[block]


@kernel
def take_weights(
    pooled: Float32Array, weights: Int8Array, label: int, scale: float, taken: Float32Array
) -> None:
    """Weights of one label, times its scale, into taken (f,); zero where pooled (f,) is zero."""
    column, factor = np.uint64(label), np.float32(scale)
    for feature in range(np.uint64(pooled.shape[0])):
        taken[feature] = _NOTHING
        if pooled[feature] != 0:
            taken[feature] = factor * np.float32(weights[feature, column])
