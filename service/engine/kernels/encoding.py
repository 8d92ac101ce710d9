"""Pixels to codes, residuals and maxima in one pass, strip by strip of an image.

Threads that work on one image take the next strip each time they are done with one, without
Python in between: a core that other work slows down takes fewer. Where an image is still being
decoded, they wait for its rows. Within a strip a block of descriptors at a time is rounded,
routed, solved and added up, so that directions never leave the L1 cache. Stage by stage, with
thousands of them in between, rounding alone took 1.4 ms for a photograph on one core and on two
alike, because they went through memory that the cores share.
"""

from typing import NamedTuple

import numpy as np

from service.engine.arrays import (
    Directions,
    FixedRows,
    Float32Array,
    Int32Array,
    Int64Array,
    UInt64Array,
)
from service.engine.compiling import kernel, part
from service.engine.kernels.coding import LeafTables, fetch_leaves, solve_block
from service.engine.kernels.fixedpoint import BLOCK, quantise_block
from service.engine.kernels.integers import Index, Scratch
from service.engine.kernels.pooling import raise_maxima
from service.engine.kernels.residuals import add_residuals
from service.engine.kernels.sift import (
    fill_feature_map,
    free_row_buffers,
    have_memory,
    new_row_buffers,
)
from service.engine.kernels.system import add_to, let_others_run, nanoseconds, read, write
from service.engine.kernels.tree import walk_block

__all__ = [
    "CODING",
    "DONE_STRIPS",
    "NEXT_STRIP",
    "PIXEL_ROWS",
    "POOLING",
    "SIFT",
    "Grid",
    "Source",
    "Strips",
    "Sums",
    "TreeTables",
    "Written",
    "encode_strips",
    "set_counter",
]

# Counters that threads share: the strip to be taken next, how many strips are done, and how many
# rows of the image are there. Fewer than none: they will not come.
NEXT_STRIP, DONE_STRIPS, PIXEL_ROWS = 0, 1, 2

# Stages whose time is told.
SIFT, CODING, POOLING = 0, 1, 2

# An image whose cells are one column: memory for next to nothing where there is no image.
_NARROWEST = 8

# How often a thread that waits asks before it begins to sleep in between: about a millisecond.
_IMPATIENT_TURNS = 5000

_NONE, _ONE = np.uint64(0), np.uint64(1)


class Strips(NamedTuple):
    """bounds (n + 1,) of n strips, in rows of the grid, and the counters that threads share."""

    bounds: Int64Array
    counters: Int64Array


class Source(NamedTuple):
    """Where descriptors come from.

    Those of an image gray (h, w) are computed in features (rows, 2, half, 8), a map of the largest
    strip, a grid's row being `step` rows of pixels and a descriptor `side`. With an empty image
    there is no map, and they are in `flat`. starts (n,) say where in `flat`, which is the map's
    memory if there is one, each descriptor of a strip begins, or of the whole grid without a map.
    """

    gray: Float32Array
    smooth: Float32Array
    derive: Float32Array
    bands: Float32Array
    step: int
    side: int
    features: Float32Array
    flat: Float32Array
    starts: UInt64Array
    stride: int
    longest: float


class Grid(NamedTuple):
    """Rows and columns of descriptors, of which one in `every` is coded in each direction."""

    rows: int
    cols: int
    every: int


class TreeTables(NamedTuple):
    """What a walk reads, see `walk`."""

    vectors: FixedRows
    cuts: Float32Array
    depth: int


class Written(NamedTuple):
    """What is filled: leaf_ids, steps, norms (n,); atom_ids and values (c, m) of what is coded."""

    leaf_ids: Int32Array
    steps: Float32Array
    norms: Float32Array
    atom_ids: Int32Array
    values: Float32Array


class Sums(NamedTuple):
    """What a thread adds up and finds the largest of.

    totals and masses are those of `add_residuals`, regions (n,) being of all descriptors; finest
    (regions, regions, channels) that of `raise_maxima`. Any may have no regions: it is left out.
    """

    regions: Int32Array
    levels_below: int
    totals: Int32Array
    masses: Int32Array
    finest: Float32Array
    sign_rule: int
    n_atoms: int


@part
def _pick(scratch: Scratch, grid: Grid, first: Index, size: Index) -> Index:
    """List which of `size` descriptors from the grid's `first` on are coded; how many."""
    every, cols = np.uint64(grid.every), np.uint64(grid.cols)
    if every == _ONE:
        for i in range(size):
            scratch.rows[i] = i
        return size
    # Counted on from the first one, without divisions for each.
    count, x = _NONE, first % cols
    down, across = first // cols % every, x % every
    for i in range(size):
        scratch.rows[count] = i
        count += np.uint64((down | across) == _NONE)
        x += _ONE
        across = across + _ONE if across + _ONE < every else _NONE
        if x == cols:
            x, across = _NONE, _NONE
            down = down + _ONE if down + _ONE < every else _NONE
    return count


@part
def _encode_strip(
    source: Source,
    grid: Grid,
    begin: Index,
    end: Index,
    directions: Directions,
    tree: TreeTables,
    leaves: LeafTables,
    atoms: FixedRows,
    sums: Sums,
    scratch: Scratch,
    written: Written,
) -> None:
    """Codes and residuals of the grid's rows `begin` to `end`, whose descriptors are there."""
    cols, every = np.uint64(grid.cols), np.uint64(grid.every)
    first, n = begin * cols, (end - begin) * cols
    has_map = source.features.shape[0] > 0
    starts = source.starts[_NONE if has_map else first :]
    steps, norms, leaf_ids = written.steps[first:], written.norms[first:], written.leaf_ids[first:]
    has_codes, has_residuals = written.atom_ids.shape[1] > 0, sums.totals.shape[0] > 0
    # While they are reached, if all are to be coded: when the first one is, its row is there.
    fetched = leaves.atom_ids[: leaves.atom_ids.shape[0] if every == _ONE else 0]
    step, above = np.uint64(source.stride), np.uint64(sums.levels_below)
    # Rows and columns that are coded, rounded up.
    code = (begin + every - _ONE) // every * ((cols + every - _ONE) // every)
    for start in range(_NONE, n, BLOCK):
        stop = min(start + BLOCK, n)
        quantise_block(
            source.flat,
            starts,
            step,
            source.longest,
            start,
            stop,
            _NONE,
            directions,
            steps,
            norms,
            scratch,
        )
        walk_block(
            directions,
            _NONE,
            norms,
            start,
            stop,
            tree.vectors,
            tree.cuts,
            tree.depth,
            scratch,
            leaf_ids,
            fetched,
        )
        if has_codes:
            count = _pick(scratch, grid, first + start, stop - start)
            if every > _ONE:
                fetch_leaves(leaf_ids, start, scratch.rows, count, leaves)
            solve_block(
                directions,
                _NONE,
                steps,
                leaf_ids,
                start,
                count,
                leaves,
                atoms,
                scratch,
                written.atom_ids,
                written.values,
                code,
            )
            code += count
        if has_residuals:
            add_residuals(
                directions,
                _NONE,
                steps,
                norms,
                leaf_ids,
                start,
                stop,
                sums.regions[first:],
                above,
                sums.totals,
                sums.masses,
            )


@part
def _is_there(strips: Strips, pixel_rows: int) -> bool:
    """Wait until so many rows of the image are there; whether they will ever be."""
    there, turns = read(strips.counters, PIXEL_ROWS), 0
    while 0 <= there < pixel_rows:
        let_others_run(turns > _IMPATIENT_TURNS)
        there, turns = read(strips.counters, PIXEL_ROWS), turns + 1
    return there >= 0


@kernel
def encode_strips(
    strips: Strips,
    source: Source,
    grid: Grid,
    directions: Directions,
    tree: TreeTables,
    leaves: LeafTables,
    atoms: FixedRows,
    sums: Sums,
    scratch: Scratch,
    written: Written,
    laps: Int64Array,
    waits: bool,  # noqa: FBT001  # kernels have no keywords
) -> bool:
    """Take strips until there is none; whether there was memory to do so.

    Whoever `waits` returns when all strips are done, by whichever thread. directions has room for
    a block, `scratch` for a block and m nonzeros. Without nonzeros there are no codes. laps (3,)
    get the nanoseconds of describing, coding and pooling.
    """
    has_map = source.features.shape[0] > 0
    buffers = new_row_buffers(source.gray.shape[1] if has_map else _NARROWEST)
    if not have_memory(buffers):
        free_row_buffers(buffers)
        return False
    n_strips = strips.bounds.shape[0] - 1
    number = add_to(strips.counters, NEXT_STRIP, 1)
    while number < n_strips:
        begin, end = strips.bounds[number], strips.bounds[number + 1]
        if has_map:
            if not _is_there(strips, source.step * (end - 1) + source.side):
                break
            started = nanoseconds()
            fill_feature_map(
                source.gray,
                source.step * begin,
                # Of a descriptor's four cells a side, each two apart; the first is the grid's.
                source.step // 2 * (end - begin - 1) + 7,
                source.smooth,
                source.derive,
                source.bands,
                buffers,
                source.features,
            )
            laps[SIFT] += nanoseconds() - started
        started = nanoseconds()
        top, bottom = np.uint64(begin), np.uint64(end)
        _encode_strip(
            source, grid, top, bottom, directions, tree, leaves, atoms, sums, scratch, written
        )
        coded = nanoseconds()
        laps[CODING] += coded - started
        if sums.finest.shape[0] > 0:
            raise_maxima(
                written.atom_ids,
                written.values,
                (grid.cols + grid.every - 1) // grid.every,
                (begin + grid.every - 1) // grid.every,
                (end + grid.every - 1) // grid.every,
                (grid.rows + grid.every - 1) // grid.every,
                sums.sign_rule,
                sums.n_atoms,
                sums.finest,
            )
            laps[POOLING] += nanoseconds() - coded
        add_to(strips.counters, DONE_STRIPS, 1)
        number = add_to(strips.counters, NEXT_STRIP, 1)
    free_row_buffers(buffers)
    turns = 0
    while waits and read(strips.counters, DONE_STRIPS) < n_strips:
        let_others_run(turns > _IMPATIENT_TURNS)
        turns += 1
    return True


@kernel
def set_counter(counters: Int64Array, place: int, number: int) -> None:
    """Let a counter be a number; whoever sees it sees all that was written before."""
    write(counters, place, number)
