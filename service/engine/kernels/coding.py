"""Values of a code: the leaf's atoms, and its cached inverse Gram matrix.

z = (WᵀW)⁻¹(Wᵀx) over the active set (section 2.3). Caching the small inverse Gram
matrix and sharing the dictionary costs 2m·d + m² multiply-adds against m·d for a
pseudo-inverse per leaf, but its tables stay in the cache. With five narrow atoms, a leaf needs
one cache line, fetched for a block of descriptors before the first is coded. Then one
descriptor is coded after the other, while the atoms of the next ones are fetched: with eight pairs
of descriptor and atom at a time, of whichever descriptor, it took twice as long in a probe in C.
"""

import numpy as np

from service.engine.arrays import (
    CACHE_LINE,
    Directions,
    FixedRows,
    Float32Array,
    Int32Array,
    UInt32Array,
)
from service.engine.compiling import kernel, part
from service.engine.kernels.fixedpoint import BLOCK
from service.engine.kernels.integers import (
    BATCH,
    LANES,
    Index,
    Scratch,
    dot_atoms,
    prefetch,
    prefetch_lanes,
)
from service.engine.kernels.leaves import LeafTables, code_by_leaf, fetch_atoms

__all__ = ["fetch_leaves", "solve_block", "solve_codes"]

_LANES, _BATCH, _LINE = np.uint64(LANES), np.uint64(BATCH), np.uint64(CACHE_LINE)
_NONE, _FIVE, _FLOAT = np.uint64(0), np.uint64(5), np.uint64(4)

# Descriptors whose atoms are on their way while one is coded. With those of the whole block at
# once, 8192 atoms took 167 ns a descriptor instead of 156, and 1024 as long; 2 to 8 do alike.
_AHEAD = np.uint64(2)


@part
def _first_id(nonzeros: Index) -> Index:
    """The column of a leaf's first atom id."""
    return nonzeros * nonzeros


@part
def _scale_of(leaves: LeafTables, leaf: Index, nonzeros: Index) -> np.float32:
    """What the factors of a leaf are to be multiplied with."""
    size = np.uint64(leaves.factors.itemsize)
    return np.float32(leaves.scales[leaf, (nonzeros * nonzeros + nonzeros) * size // _FLOAT])


@part
def fetch_leaves(
    leaf_ids: Int32Array, start: Index, rows: UInt32Array, count: Index, leaves: LeafTables
) -> None:
    """Ask for the tables of the leaves of the descriptors that the first `count` rows name."""
    row_bytes = np.uint64(leaves.atom_ids.shape[1] * leaves.atom_ids.itemsize)
    for k in range(count):
        for offset in range(_NONE, row_bytes, _LINE):
            prefetch(leaves.atom_ids, np.uint64(leaf_ids[start + rows[k]]), offset)


@part
def _fetch_atoms(leaf: Index, leaves: LeafTables, atoms: FixedRows, nonzeros: Index) -> None:
    """Ask for the atoms of a leaf."""
    if nonzeros == _FIVE:
        fetch_atoms(leaves, leaf, 5, atoms)
        return
    first = _first_id(nonzeros)
    for a in range(first, first + nonzeros):
        prefetch_lanes(atoms, np.uint64(leaves.atom_ids[leaf, a]))


@part
def _code_any(
    directions: Directions,
    row: Index,
    step: np.float32,
    leaf: Index,
    leaves: LeafTables,
    atoms: FixedRows,
    scratch: Scratch,
    atom_ids: Int32Array,
    values: Float32Array,
    i: Index,
) -> None:
    """The code of one descriptor with any number of atoms, and of any width."""
    nonzeros, width = np.uint64(atom_ids.shape[1]), np.uint64(directions.shape[1])
    ids, scale = _first_id(nonzeros), step * _scale_of(leaves, leaf, nonzeros)
    table = leaves.atom_ids
    if nonzeros == _FIVE:
        for column in range(_NONE, width, _LANES):
            dot_atoms(directions, row, atoms, table, leaf, ids, 5, column, _NONE, scratch)
    elif nonzeros < _BATCH:
        for a in range(nonzeros):
            for column in range(_NONE, width, _LANES):
                dot_atoms(directions, row, atoms, table, leaf, ids + a, 1, column, a, scratch)
    else:
        for first in range(_NONE, nonzeros, _BATCH):
            # What follows the last id is none: the last batch shares some with the one before.
            start = first if first + _BATCH <= nonzeros else nonzeros - _BATCH
            begin = ids + start
            for column in range(_NONE, width, _LANES):
                dot_atoms(directions, row, atoms, table, leaf, begin, BATCH, column, start, scratch)
    for a in range(nonzeros):
        atom_ids[i, a] = table[leaf, ids + a]
        values[i, a] = 0
    for b in range(nonzeros):
        product = np.float32(scratch.products[b]) * scale
        for a in range(nonzeros):
            values[i, a] += np.float32(leaves.factors[leaf, b * nonzeros + a]) * product


@part
def solve_block(
    directions: Directions,
    first_row: Index,
    steps: Float32Array,
    leaf_ids: Int32Array,
    start: Index,
    count: Index,
    leaves: LeafTables,
    atoms: FixedRows,
    scratch: Scratch,
    atom_ids: Int32Array,
    values: Float32Array,
    first_code: Index,
) -> None:
    """Atom ids and values of some descriptors of a block, from `first_code` on.

    Those that the first `count` of scratch.rows name, counted from `start`, see `solve_codes`;
    the block's directions are the rows from `first_row`. `scratch` is for m nonzeros. The rows of
    their leaves have been asked for.
    """
    nonzeros = np.uint64(atom_ids.shape[1])
    # The paper's number of atoms, and SIFT.
    is_usual = nonzeros == _FIVE and directions.shape[1] == LANES
    for k in range(min(_AHEAD, count)):
        leaf = np.uint64(leaf_ids[start + scratch.rows[k]])
        _fetch_atoms(leaf, leaves, atoms, nonzeros)
    for k in range(count):
        place, i = np.uint64(scratch.rows[k]), first_code + k
        row, step, leaf = first_row + place, steps[start + place], leaf_ids[start + place]
        leaf = np.uint64(leaf)
        if k + _AHEAD < count:
            later = np.uint64(leaf_ids[start + scratch.rows[k + _AHEAD]])
            _fetch_atoms(later, leaves, atoms, nonzeros)
        if is_usual:
            code_by_leaf(directions, row, step, leaves, leaf, 5, atoms, atom_ids, values, i)
        else:
            _code_any(directions, row, step, leaf, leaves, atoms, scratch, atom_ids, values, i)


@kernel
def solve_codes(
    directions: Directions,
    steps: Float32Array,
    leaf_ids: Int32Array,
    leaves: LeafTables,
    atoms: FixedRows,
    scratch: Scratch,
    atom_ids: Int32Array,
    values: Float32Array,
) -> None:
    """Atom ids and values of every descriptor.

    directions (n, w) and steps (n,) are the descriptors; leaf_ids (n,); atoms (K, w) in fixed
    point; scratch for a block and m nonzeros -> atom_ids (n, m), values (n, m).
    """
    n = np.uint64(directions.shape[0])
    for start in range(_NONE, n, BLOCK):
        count = min(BLOCK, n - start)
        for i in range(count):
            scratch.rows[i] = i
        fetch_leaves(leaf_ids, start, scratch.rows, count, leaves)
        solve_block(
            directions,
            start,
            steps,
            leaf_ids,
            start,
            count,
            leaves,
            atoms,
            scratch,
            atom_ids,
            values,
            start,
        )
