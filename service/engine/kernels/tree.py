"""Descriptors down the tree in integers, a block of them one level at a time.

Within a block the walks are independent, so that their work overlaps, and a child is
fetched from memory while the rest of the block takes its step.
"""

import numpy as np

from service.engine.arrays import Directions, FixedRows, Float32Array, Int32Array
from service.engine.compiling import kernel, part
from service.engine.kernels.fixedpoint import BLOCK
from service.engine.kernels.integers import (
    BATCH,
    LANES,
    Index,
    Pairs,
    add_dots,
    end_batch,
    new_pairs,
    prefetch_lanes,
)

__all__ = ["walk", "walk_block"]

_LANES, _BATCH = np.uint64(LANES), np.uint64(BATCH)
_NONE, _ONE = np.uint64(0), np.uint64(1)


@part
def walk_block(
    directions: Directions,
    first_row: Index,
    norms: Float32Array,
    start: Index,
    end: Index,
    vectors: FixedRows,
    cuts: Float32Array,
    depth: int,
    pairs: Pairs,
    leaf_ids: Int32Array,
) -> None:
    """Leaf ids of descriptors `start` to `end`, see `walk`.

    Their directions are the rows from `first_row`; `pairs` is scratch for a block.
    """
    width, size = np.uint64(directions.shape[1]), end - start
    in_batches = (size + _BATCH - _ONE) // _BATCH * _BATCH
    for i in range(size):
        pairs.rows[i], pairs.others[i] = first_row + i, _NONE
        pairs.factors[i] = norms[start + i]
    end_batch(pairs, size)
    for _ in range(depth):
        for first in range(_NONE, size, _BATCH):
            for column in range(_NONE, width, _LANES):
                add_dots(directions, vectors, pairs, first, column)
        # Decided in a loop of their own, so that none waits for the end of a product. To the end
        # of the last batch: where nobody walks, it does not matter.
        for i in range(in_batches):
            node = pairs.others[i]
            right = np.float32(pairs.products[i]) > cuts[node] * pairs.factors[i]
            child = node + node + _ONE + np.uint64(right)
            pairs.others[i] = child
            prefetch_lanes(vectors, child)
    first_leaf = np.uint64(2**depth - 1)
    for i in range(size):
        leaf_ids[start + i] = pairs.others[i] - first_leaf if norms[start + i] > 0 else _NONE


@kernel
def walk(
    directions: Directions,
    norms: Float32Array,
    vectors: FixedRows,
    cuts: Float32Array,
    depth: int,
    leaf_ids: Int32Array,
) -> None:
    """The leaf of every descriptor: right where x·v > t‖x‖, left otherwise.

    That compares the angle between x and v, which the paper splits at its median (section
    2.3). A descriptor of no length has no angle and goes left all the way. Node i has children
    2i + 1 and 2i + 2. directions (n, w) and their norms (n,); vectors (2**depth - 1, w); cuts
    (2**depth - 1,) -> leaf_ids (n,).
    """
    n = np.uint64(directions.shape[0])
    pairs = new_pairs(BLOCK)
    for start in range(_NONE, n, BLOCK):
        end = min(start + BLOCK, n)
        walk_block(directions, start, norms, start, end, vectors, cuts, depth, pairs, leaf_ids)
