"""Pixels to codes, residuals and maxima in one pass, band by band of an image.

Threads that work on one image share its rows among themselves, without Python in between: a core
that other work slows down takes fewer. A thread works on bands of a few rows, whose feature map and
codes lie in memory of its own that stays in its cache: of a photograph they would be three
megabytes. Within a band a block of descriptors at a time is
rounded, routed, solved and added up, so that directions never leave the L1 cache.
"""

from typing import NamedTuple

import numpy as np

from service.engine.arrays import Directions, FixedRows, Float32Array, Int32Array, UInt32Array
from service.engine.compiling import kernel, part
from service.engine.kernels.coding import fetch_leaves, solve_block
from service.engine.kernels.fixedpoint import BLOCK, Runs, quantise_block
from service.engine.kernels.integers import Index, Scratch
from service.engine.kernels.layers import Sums, join_layers, layer_of, own_layer
from service.engine.kernels.leaves import LeafTables
from service.engine.kernels.pooling import raise_maxima
from service.engine.kernels.residuals import add_residuals
from service.engine.kernels.sift import (
    RowBuffers,
    fill_feature_map,
    free_row_buffers,
    have_memory,
    new_row_buffers,
)
from service.engine.kernels.strips import (
    TIMES,
    Decoding,
    Strips,
    count_as_done,
    new_owner,
    take_rows,
    wait_for_all,
    wait_for_rows,
)
from service.engine.kernels.system import add_to, nanoseconds
from service.engine.kernels.tree import walk_block

__all__ = [
    "Grid",
    "Source",
    "TreeTables",
    "Written",
    "encode_strips",
]

# Stages whose time is told, as counters.
_SIFT, _CODING, _POOLING = TIMES, TIMES + 1, TIMES + 2

# An image whose cells are one column: memory for next to nothing where there is no image.
_NARROWEST = 8

# Rows of the feature map that one descriptor spans.
_MAP_ROWS = 7

_NONE, _ONE = np.uint64(0), np.uint64(1)


class Source(NamedTuple):
    """How descriptors come from an image, or where they are already.

    Those of an image are computed in features (rows, 2, half, 8), a map of one band, and peaks
    (rows, 2, half), a grid's row being `step` rows of pixels and a descriptor `side`. Without rows
    there is no map. `runs` are the descriptors of a band, in the map's memory, or those of the
    whole grid without a map.
    """

    smooth: Float32Array
    derive: Float32Array
    bands: Float32Array
    step: int
    side: int
    features: Float32Array
    peaks: UInt32Array
    runs: Runs


class Grid(NamedTuple):
    """Rows and columns of descriptors, of which one in `every` is coded in each direction."""

    rows: int
    cols: int
    every: int


class Band(NamedTuple):
    """Rows `begin` to `end` of the grid, the last of those from `top` on that one thread described.

    There may be none: then `top` is the first one that it will.
    """

    top: int
    begin: int
    end: int


class TreeTables(NamedTuple):
    """What a walk reads, see `walk`."""

    vectors: FixedRows
    cuts: Float32Array
    depth: int


class Written(NamedTuple):
    """What is filled: leaf_ids, steps, norms (n,); atom_ids and values (c, m) of what is coded.

    They have room for the whole grid if all are to be `kept`, else for one band after the other.
    """

    kept: bool
    leaf_ids: Int32Array
    steps: Float32Array
    norms: Float32Array
    atom_ids: Int32Array
    values: Float32Array


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
def _describe_band(
    gray: Float32Array, source: Source, band: Band, end: int, buffers: RowBuffers
) -> None:
    """Fill the map of the grid's rows that follow a band, up to `end`.

    What both share is moved, not computed again.
    """
    features, cells, top = source.features, source.step // 2, band.top
    shared = _MAP_ROWS - cells if band.begin < band.end else 0
    if shared > 0:
        before = _map_rows(source, band.end - band.begin) - shared
        for row in range(shared):
            for parity in range(features.shape[1]):
                for x in range(features.shape[2]):
                    source.peaks[row, parity, x] = source.peaks[before + row, parity, x]
                    for n in range(features.shape[3]):
                        features[row, parity, x, n] = features[before + row, parity, x, n]
    else:
        shared, top = 0, band.end
    done = cells * (band.end - top)
    fill_feature_map(
        gray,
        source.step * top,
        done + shared,
        done + _map_rows(source, end - band.end),
        source.smooth,
        source.derive,
        source.bands,
        buffers,
        features,
        source.peaks,
        shared,
    )


@part
def _map_rows(source: Source, rows: int) -> int:
    """Rows of the map that so many rows of the grid take."""
    # Of a descriptor's four cells a side, each two apart; the first is the grid's.
    return source.step // 2 * (rows - 1) + _MAP_ROWS


@part
def _encode_band(
    source: Source,
    grid: Grid,
    begin: Index,
    end: Index,
    directions: Directions,
    tree: TreeTables,
    leaves: LeafTables,
    atoms: FixedRows,
    own: Sums,
    scratch: Scratch,
    written: Written,
) -> None:
    """Codes and residuals of the grid's rows `begin` to `end`, whose descriptors are there."""
    cols, every = np.uint64(grid.cols), np.uint64(grid.every)
    first, n = begin * cols, (end - begin) * cols
    has_map = source.features.shape[0] > 0
    flat, peaks, starts, stride, longest = source.runs
    runs = Runs(flat, peaks, starts[_NONE if has_map else first :], stride, longest)
    place = first if written.kept else _NONE
    steps, norms, leaf_ids = written.steps[place:], written.norms[place:], written.leaf_ids[place:]
    has_codes, has_residuals = written.atom_ids.shape[1] > 0, own.totals.shape[0] > 0
    # While they are reached, if all are to be coded: when the first one is, its row is there.
    fetched = leaves.atom_ids[: leaves.atom_ids.shape[0] if every == _ONE else 0]
    above = np.uint64(own.levels_below)
    code = _first_code(written, grid, begin)
    for start in range(_NONE, n, BLOCK):
        stop = min(start + BLOCK, n)
        quantise_block(runs, start, stop, _NONE, directions, steps, norms, scratch)
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
                own.regions[first:],
                above,
                own.totals,
                own.masses,
            )


@part
def _first_code(written: Written, grid: Grid, begin: Index) -> Index:
    """Where the codes of the grid's rows from `begin` on are written."""
    if not written.kept:
        return _NONE
    cols, every = np.uint64(grid.cols), np.uint64(grid.every)
    # Rows and columns that are coded, rounded up.
    return (begin + every - _ONE) // every * ((cols + every - _ONE) // every)


@part
def _pool_band(grid: Grid, begin: int, end: int, own: Sums, written: Written) -> None:
    """Raise the maxima to the codes of the grid's rows `begin` to `end`."""
    first, every = _first_code(written, grid, np.uint64(begin)), grid.every
    raise_maxima(
        written.atom_ids[first:],
        written.values[first:],
        (grid.cols + every - 1) // every,
        (begin + every - 1) // every,
        (end + every - 1) // every,
        (grid.rows + every - 1) // every,
        own.sign_rule,
        own.n_atoms,
        own.finest,
    )


@part
def _wait_for_pixels(
    strips: Strips, decoding: Decoding, source: Source, band: Band, end: int
) -> bool:
    """Wait for the pixels of the grid's rows that follow a band, up to `end`; whether they come."""
    # Those of the band are there.
    described = source.step * (band.end - 1) + source.side
    first = source.step * band.end if band.begin == band.end else described
    return wait_for_rows(strips, decoding, first, source.step * (end - 1) + source.side)


@kernel
def encode_strips(
    strips: Strips,
    gray: Float32Array,
    decoding: Decoding,
    source: Source,
    grid: Grid,
    directions: Directions,
    tree: TreeTables,
    leaves: LeafTables,
    atoms: FixedRows,
    sums: Sums,
    scratch: Scratch,
    written: Written,
    waits: bool,  # noqa: FBT001  # kernels have no keywords
) -> bool:
    """Take rows until there are none; whether there was memory to do so.

    Descriptors are those of an image gray (h, w), which `decoding` may fill, or given by `source`.
    Whoever `waits` returns when all rows are done, by whichever thread, and joins what all of them
    found. directions has room for a block, `scratch` for a block and m nonzeros. Without nonzeros
    there are no codes.
    """
    has_map = source.features.shape[0] > 0
    buffers = new_row_buffers(max(gray.shape[1], _NARROWEST))
    if not have_memory(buffers):
        free_row_buffers(buffers)
        return False
    thread, own, band = new_owner(strips), layer_of(sums, 0), Band(0, 0, -1)
    while True:
        begin, end = take_rows(strips, thread)
        if begin == end:
            break
        if band.end < 0:  # until now, it was nobody's
            own = own_layer(strips, sums)
        if begin != band.end:  # the first ones, or stolen
            band = Band(begin, begin, begin)
        if has_map:
            if not _wait_for_pixels(strips, decoding, source, band, end):
                break
            started = nanoseconds()
            _describe_band(gray, source, band, end, buffers)
            add_to(strips.counters, _SIFT, nanoseconds() - started)
        started = nanoseconds()
        _encode_band(
            source,
            grid,
            np.uint64(begin),
            np.uint64(end),
            directions,
            tree,
            leaves,
            atoms,
            own,
            scratch,
            written,
        )
        coded = nanoseconds()
        add_to(strips.counters, _CODING, coded - started)
        if own.finest.shape[0] > 0:
            _pool_band(grid, begin, end, own, written)
            add_to(strips.counters, _POOLING, nanoseconds() - coded)
        count_as_done(strips, end - begin)
        band = Band(band.top, begin, end)
    free_row_buffers(buffers)
    if waits:
        wait_for_all(strips)
        join_layers(strips, sums)
    return True
