"""Descriptors down the tree in integers, a block of them one level at a time.

Within a block the walks are independent, so that their work overlaps, and a child is
fetched from memory while the rest of the block takes its step.
"""

import numpy as np

from service.engine.arrays import (
    CACHE_LINE,
    AtomIds,
    Directions,
    FixedRows,
    Float32Array,
    Int32Array,
)
from service.engine.compiling import kernel, part
from service.engine.kernels.fixedpoint import BLOCK
from service.engine.kernels.integers import (
    BATCH,
    LANES,
    Index,
    Scratch,
    add_dots,
    end_batch,
    go_down,
    prefetch,
    prefetch_lanes,
    step_down,
)

__all__ = ["walk", "walk_block"]

_LANES, _BATCH, _LINE = np.uint64(LANES), np.uint64(BATCH), np.uint64(CACHE_LINE)
_NONE = np.uint64(0)

# The children of the first levels, up to 16 kB of bytes, stay in the first cache.
_CACHED_LEVELS = 6


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
    scratch: Scratch,
    leaf_ids: Int32Array,
    leaf_rows: AtomIds,
) -> None:
    """Leaf ids of descriptors `start` to `end`, see `walk`.

    Their directions are the rows from `first_row`; `scratch` is for a block. Rows of the leaves
    in a table are asked for, if it has rows.
    """
    first_leaf = np.uint64(2**depth - 1)
    row_bytes = np.uint64(leaf_rows.shape[1] * leaf_rows.itemsize)
    rows, width = np.uint64(directions.shape[0]), np.uint64(directions.shape[1])
    size = end - start
    for i in range(size):
        scratch.rows[i], scratch.others[i] = first_row + i, _NONE
        scratch.factors[i] = norms[start + i]
    end_batch(scratch, size)
    for level in range(depth):
        # To the end of the last batch: where nobody walks, it does not matter.
        for first in range(_NONE, size, _BATCH):
            if width == _LANES and first_row + first + _BATCH <= rows:
                step_down(directions, first_row, vectors, cuts, scratch, first)
            else:
                for column in range(_NONE, width, _LANES):
                    add_dots(directions, vectors, scratch, first, column)
                go_down(cuts, scratch, first)
            # Leaves have no vectors: asking for some behind the last cost 4 % of coding's time.
            if _CACHED_LEVELS <= level < depth - 1:
                for i in range(first, first + _BATCH):
                    prefetch_lanes(vectors, scratch.others[i])
            if level == depth - 1 and leaf_rows.shape[0] > 0:
                for i in range(first, first + _BATCH):
                    for offset in range(_NONE, row_bytes, _LINE):
                        prefetch(leaf_rows, scratch.others[i] - first_leaf, offset)
    for i in range(size):
        leaf_ids[start + i] = scratch.others[i] - first_leaf if norms[start + i] > 0 else _NONE


@kernel
def walk(
    directions: Directions,
    norms: Float32Array,
    vectors: FixedRows,
    cuts: Float32Array,
    depth: int,
    scratch: Scratch,
    leaf_ids: Int32Array,
    no_rows: AtomIds,
) -> None:
    """The leaf of every descriptor: right where x·v > t‖x‖, left otherwise.

    That compares the angle between x and v, which the paper splits at its median (section
    2.3). A descriptor of no length has no angle and goes left all the way. Node i has children
    2i + 1 and 2i + 2. directions (n, w) and their norms (n,); vectors (2**depth - 1, w); cuts
    (2**depth - 1,); scratch for a block; no_rows (0, w) -> leaf_ids (n,).
    """
    n = np.uint64(directions.shape[0])
    for start in range(_NONE, n, BLOCK):
        end = min(start + BLOCK, n)
        walk_block(
            directions,
            start,
            norms,
            start,
            end,
            vectors,
            cuts,
            depth,
            scratch,
            leaf_ids,
            no_rows,
        )
