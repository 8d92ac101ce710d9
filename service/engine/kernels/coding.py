"""Values of a code: the leaf's atoms, and its cached inverse Gram matrix.

z = (WᵀW)⁻¹(Wᵀx) over the active set (section 2.3). Caching the small inverse Gram
matrix and sharing the dictionary costs 2m·d + m² multiply-adds against m·d for a
pseudo-inverse per leaf, but its tables stay in the cache. What a leaf needs lies in a pair of
cache lines that is fetched for a block of descriptors before the first is coded. Then one
descriptor is coded after the other, while the atoms of the next ones are fetched: with eight pairs
of descriptor and atom at a time, of whichever descriptor, it took twice as long in a probe in C.
"""

from typing import NamedTuple

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

__all__ = ["LeafTables", "fetch_leaves", "solve_block", "solve_codes"]

_LANES, _BATCH, _LINE = np.uint64(LANES), np.uint64(BATCH), np.uint64(CACHE_LINE)
_NONE, _ONE, _TWO, _THREE, _FOUR, _FIVE = (np.uint64(number) for number in range(6))

# Descriptors whose atoms are on their way while one is coded. With those of the whole block at
# once, 8192 atoms took 167 ns a descriptor instead of 156, and 1024 as long; 2 to 8 do alike.
_AHEAD = np.uint64(4)


class LeafTables(NamedTuple):
    """What coding reads of a leaf: one row, which begins a cache line, of atom ids and floats.

    atom_ids (leaves, ≥2p + m(m+1)/2) has the numbers of the leaf's m atoms; p ≥ m is in whole
    batches. floats are another view of the same memory: from column p on, the scales of these
    atoms, and from 2p on, the upper triangle of the inverse Gram matrix. In two arrays, a
    descriptor took 4 % longer.
    """

    atom_ids: Int32Array
    floats: Float32Array


@part
def fetch_leaves(
    leaf_ids: Int32Array, start: Index, rows: UInt32Array, count: Index, leaves: LeafTables
) -> None:
    """Ask for the tables of the leaves of the descriptors that the first `count` rows name."""
    row_bytes = np.uint64(4 * leaves.atom_ids.shape[1])
    for k in range(count):
        for offset in range(_NONE, row_bytes, _LINE):
            prefetch(leaves.atom_ids, np.uint64(leaf_ids[start + rows[k]]), offset)


@part
def _fetch_atoms(leaf: Index, leaves: LeafTables, atoms: FixedRows, nonzeros: Index) -> None:
    """Ask for the atoms of a leaf."""
    for a in range(nonzeros):
        prefetch_lanes(atoms, np.uint64(leaves.atom_ids[leaf, a]))


@part
def _code_five(
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
    """The code of one descriptor with five atoms, the paper's number, without loops."""
    for column in range(_NONE, np.uint64(directions.shape[1]), _LANES):
        dot_atoms(directions, row, atoms, leaves.atom_ids, leaf, _NONE, 5, column, scratch)
    t, p = leaves.atom_ids[leaf], scratch.products
    s, g = leaves.floats[leaf, _BATCH:], leaves.floats[leaf, _TWO * _BATCH :]
    a = np.float32(p[_NONE]) * (s[_NONE] * step)
    b = np.float32(p[_ONE]) * (s[_ONE] * step)
    c = np.float32(p[_TWO]) * (s[_TWO] * step)
    d = np.float32(p[_THREE]) * (s[_THREE] * step)
    e = np.float32(p[_FOUR]) * (s[_FOUR] * step)
    g1, g2, g3, g4 = g[_ONE], g[_TWO], g[_THREE], g[_FOUR]
    g6, g7, g8 = g[np.uint64(6)], g[np.uint64(7)], g[np.uint64(8)]
    g10, g11, g13 = g[np.uint64(10)], g[np.uint64(11)], g[np.uint64(13)]
    atom_ids[i, _NONE], atom_ids[i, _ONE], atom_ids[i, _TWO] = t[_NONE], t[_ONE], t[_TWO]
    atom_ids[i, _THREE], atom_ids[i, _FOUR] = t[_THREE], t[_FOUR]
    values[i, _NONE] = g[_NONE] * a + g1 * b + g2 * c + g3 * d + g4 * e
    values[i, _ONE] = g1 * a + g[_FIVE] * b + g6 * c + g7 * d + g8 * e
    values[i, _TWO] = g2 * a + g6 * b + g[np.uint64(9)] * c + g10 * d + g11 * e
    values[i, _THREE] = g3 * a + g7 * b + g10 * c + g[np.uint64(12)] * d + g13 * e
    values[i, _FOUR] = g4 * a + g8 * b + g11 * c + g13 * d + g[np.uint64(14)] * e


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
    """The code of one descriptor with any number of atoms."""
    nonzeros = np.uint64(atom_ids.shape[1])
    batches = (nonzeros + _BATCH - _ONE) // _BATCH * _BATCH
    t, c = leaves.atom_ids[leaf], scratch.correlations
    s, g = leaves.floats[leaf, batches:], leaves.floats[leaf, _TWO * batches :]
    for first in range(_NONE, nonzeros, _BATCH):
        for column in range(_NONE, np.uint64(directions.shape[1]), _LANES):
            dot_atoms(directions, row, atoms, leaves.atom_ids, leaf, first, BATCH, column, scratch)
    for a in range(nonzeros):
        atom_ids[i, a] = t[a]
        c[a] = np.float32(scratch.products[a]) * (s[a] * step)
        values[i, a] = 0
    place = _NONE
    for a in range(nonzeros):
        values[i, a] += g[place] * c[a]
        place += _ONE
        for b in range(a + _ONE, nonzeros):
            values[i, a] += g[place] * c[b]
            values[i, b] += g[place] * c[a]
            place += _ONE


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
        if nonzeros == _FIVE:
            _code_five(directions, row, step, leaf, leaves, atoms, scratch, atom_ids, values, i)
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
