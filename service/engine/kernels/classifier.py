"""Linear scores that skip the zeros of the pooled vector.

Weights are stored feature-major: the rows of features that are zero, often more
than half of them, are never read. Reading the others is bound by memory: they are
8-bit integers, and asked for ahead.
"""

from typing import NamedTuple

import numpy as np

from service.engine.arrays import CACHE_LINE, Float32Array, Int8Array, Int64Array, UInt32Array
from service.engine.compiling import kernel, part
from service.engine.kernels.integers import prefetch
from service.engine.kernels.system import add_to, let_others_run, nanoseconds, read, write

__all__ = [
    "DONE_PARTS",
    "IS_POOLED",
    "Scoring",
    "fill_scores",
    "take_weights",
]

IS_POOLED, _NEXT_PART, DONE_PARTS = 0, 1, 2

# Nanoseconds that a thread waits for a pooled vector, which may never come: an image is pooled
# within a few milliseconds.
_LONGEST_WAIT = 10_000_000

_LINE = np.uint64(CACHE_LINE)
_NOTHING = np.float32(0)
_NONE, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
_THREE, _FOUR = np.uint64(3), np.uint64(4)

# Rows that are on their way while four are added: 0.52 ms instead of 0.71 for 2048 atoms and
# 101 labels after 32 MB of other data were read. Distances of 4 to 32 do alike.
_AHEAD = np.uint64(16)


class Scoring(NamedTuple):
    """A pooled vector (f,) times weights (f, columns), in parts that threads share.

    ends (parts,) of parts that follow one another; nonzero (f,) is scratch; sums (parts, ≥ columns)
    are filled, of which no two parts share a cache line; counters (3,) say whether the pooled
    vector is there (negative: it will not come), which part is to be taken next, and how many are
    done.
    """

    pooled: Float32Array
    weights: Int8Array
    ends: Int64Array
    nonzero: UInt32Array
    sums: Float32Array
    counters: Int64Array


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
    labels = np.uint64(weights.shape[1])
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


@part
def _take_parts(scoring: Scoring) -> None:
    """Add up parts until there is none that nobody has taken."""
    n_parts = scoring.ends.shape[0]
    number = add_to(scoring.counters, _NEXT_PART, 1)
    while number < n_parts:
        begin, sums = scoring.ends[number - 1] if number > 0 else 0, scoring.sums[number]
        sums[:] = 0
        _add_scores(
            scoring.pooled,
            scoring.weights,
            begin,
            scoring.ends[number],
            scoring.nonzero[begin:],
            sums,
        )
        add_to(scoring.counters, DONE_PARTS, 1)
        number = add_to(scoring.counters, _NEXT_PART, 1)


@part
def _wait_until_pooled(counters: Int64Array) -> bool:
    """Wait for a pooled vector, for a while; whether it is there."""
    started = nanoseconds()
    while read(counters, IS_POOLED) == 0 and nanoseconds() - started < _LONGEST_WAIT:
        let_others_run(False)  # noqa: FBT003  # kernels have no keywords
    return read(counters, IS_POOLED) > 0


@kernel
def fill_scores(
    scoring: Scoring,
    blocks: Int64Array,
    scales: Float32Array,
    bias: Float32Array,
    scores: Float32Array,
    helps: bool,  # noqa: FBT001
) -> None:
    """Bias, and pooled·weights part by part, each label's times its scale in the part's block.

    Whoever `helps` waits for the pooled vector, adds up some parts and leaves the rest to others:
    by the same machine code, so that it does not matter who did. blocks (parts,); scales (blocks,
    labels); bias (labels,); scores (labels,) out.
    """
    if helps:
        if _wait_until_pooled(scoring.counters):
            _take_parts(scoring)
        return
    write(scoring.counters, IS_POOLED, 1)
    _take_parts(scoring)
    n_parts = scoring.ends.shape[0]
    while read(scoring.counters, DONE_PARTS) < n_parts:
        let_others_run(False)  # noqa: FBT003
    for label in range(scores.shape[0]):
        scores[label] = bias[label]
    # In their order, whoever added them up.
    for number in range(n_parts):
        own, block = scoring.sums[number], blocks[number]
        for label in range(scores.shape[0]):
            scores[label] += scales[block, label] * own[label]


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
