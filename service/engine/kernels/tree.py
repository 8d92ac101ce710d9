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
    step_from_root,
)

__all__ = ["walk", "walk_block"]

_LANES, _BATCH, _LINE = np.uint64(LANES), np.uint64(BATCH), np.uint64(CACHE_LINE)
_NONE, _ONE = np.uint64(0), np.uint64(1)

# The children of the first levels, up to 64 kB of bytes, are close enough: to fetch them as well
# made a walk of a photograph 2 % longer.
_CACHED_LEVELS = 8


@part
def _walk_rows(
    directions: Directions,
    first_row: Index,
    size: Index,
    vectors: FixedRows,
    cuts: Float32Array,
    depth: int,
    scratch: Scratch,
    leaf_rows: AtomIds,
) -> None:
    """Nodes to leaves, for whole batches of directions of `LANES` columns.

    Levels that fetch and those that do not have loops of their own: a walk with one loop, which
    asks each time, took a tenth longer.
    """
    last = max(depth - 1, 1)
    for _ in range(min(depth, 1)):  # a tree that is being grown may have no level yet
        for first in range(_NONE, size, _BATCH):
            step_from_root(directions, first_row, vectors, cuts, scratch, first)
    for _ in range(1, min(_CACHED_LEVELS, last)):
        for first in range(_NONE, size, _BATCH):
            step_down(directions, first_row, vectors, cuts, scratch, first)
    for _ in range(_CACHED_LEVELS, last):
        for first in range(_NONE, size, _BATCH):
            step_down(directions, first_row, vectors, cuts, scratch, first)
            for i in range(first, first + _BATCH):
                prefetch_lanes(vectors, scratch.others[i])
    # Leaves have no vectors: asking for some behind the last cost 4 % of coding's time.
    for _ in range(last, depth):
        for first in range(_NONE, size, _BATCH):
            step_down(directions, first_row, vectors, cuts, scratch, first)
            _fetch_leaves(leaf_rows, depth, scratch, first)


@part
def _walk_list(
    directions: Directions,
    size: Index,
    vectors: FixedRows,
    cuts: Float32Array,
    depth: int,
    scratch: Scratch,
    leaf_rows: AtomIds,
) -> None:
    """The same for the directions that scratch.rows name, of any number of columns."""
    width = np.uint64(directions.shape[1])
    for level in range(depth):
        for first in range(_NONE, size, _BATCH):
            for column in range(_NONE, width, _LANES):
                add_dots(directions, vectors, scratch, first, column)
            go_down(cuts, scratch, first)
            if level == depth - 1:
                _fetch_leaves(leaf_rows, depth, scratch, first)
            else:
                for i in range(first, first + _BATCH):
                    prefetch_lanes(vectors, scratch.others[i])


@part
def _fetch_leaves(leaf_rows: AtomIds, depth: int, scratch: Scratch, first: Index) -> None:
    """Ask for the rows of the leaves that a batch has reached, if there are rows."""
    first_leaf = np.uint64(2**depth - 1)
    if leaf_rows.shape[0] > 0:
        row_bytes = np.uint64(leaf_rows.shape[1] * leaf_rows.itemsize)
        for i in range(first, first + _BATCH):
            for offset in range(_NONE, row_bytes, _LINE):
                prefetch(leaf_rows, scratch.others[i] - first_leaf, offset)


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
    size, first_leaf = end - start, np.uint64(2**depth - 1)
    for i in range(size):
        scratch.rows[i], scratch.others[i] = first_row + i, _NONE
        scratch.factors[i] = norms[start + i]
    # To the end of the last batch: where nobody walks, it does not matter.
    end_batch(scratch, size)
    whole = (size + _BATCH - _ONE) // _BATCH * _BATCH
    if directions.shape[1] == LANES and first_row + whole <= np.uint64(directions.shape[0]):
        _walk_rows(directions, first_row, whole, vectors, cuts, depth, scratch, leaf_rows)
    else:
        _walk_list(directions, whole, vectors, cuts, depth, scratch, leaf_rows)
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
