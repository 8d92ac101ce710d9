"""Values of a code: the leaf's atoms, and its cached inverse Gram matrix.

z = (WᵀW)⁻¹(Wᵀx) over the active set (section 2.3). Caching the small inverse Gram
matrix and sharing the dictionary costs 2m·d + m² multiply-adds against m·d for a
pseudo-inverse per leaf, but its tables stay in the cache. What a leaf needs lies in two
cache lines that are fetched for a block of descriptors before the first is coded, then all
atoms of the block are, before the first product. Then one descriptor is coded after the other:
with eight pairs of descriptor and atom at a time, of whichever descriptor, it took twice as long.
"""

import numpy as np

from service.engine.arrays import CACHE_LINE, Directions, FixedRows, Float32Array, Int32Array
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

__all__ = ["solve_block", "solve_codes"]

_LANES, _BATCH, _LINE = np.uint64(LANES), np.uint64(BATCH), np.uint64(CACHE_LINE)
_NONE, _ONE, _TWO, _THREE, _FOUR, _FIVE = (np.uint64(number) for number in range(6))


@part
def _correlation(
    atom: Index, product: np.int32, step: np.float32, atom_scales: Float32Array
) -> np.float32:
    """A descriptor's product with an atom, from that of their integers."""
    return np.float32(np.float32(product) * (atom_scales[atom] * step))


@part
def _code_five(
    directions: Directions,
    row: Index,
    step: np.float32,
    leaf: Index,
    table: Int32Array,
    inverses: Float32Array,
    atoms: FixedRows,
    atom_scales: Float32Array,
    scratch: Scratch,
    atom_ids: Int32Array,
    values: Float32Array,
    i: Index,
) -> None:
    """The code of one descriptor with five atoms, the paper's number, without loops."""
    for column in range(_NONE, np.uint64(directions.shape[1]), _LANES):
        dot_atoms(directions, row, atoms, table, leaf, _NONE, 5, column, scratch)
    t, p, g = table[leaf], scratch.products, inverses[leaf]
    t0, t1, t2, t3, t4 = t[_NONE], t[_ONE], t[_TWO], t[_THREE], t[_FOUR]
    a = _correlation(np.uint64(t0), p[_NONE], step, atom_scales)
    b = _correlation(np.uint64(t1), p[_ONE], step, atom_scales)
    c = _correlation(np.uint64(t2), p[_TWO], step, atom_scales)
    d = _correlation(np.uint64(t3), p[_THREE], step, atom_scales)
    e = _correlation(np.uint64(t4), p[_FOUR], step, atom_scales)
    g1, g2, g3, g4 = g[_ONE], g[_TWO], g[_THREE], g[_FOUR]
    g6, g7, g8 = g[np.uint64(6)], g[np.uint64(7)], g[np.uint64(8)]
    g10, g11, g13 = g[np.uint64(10)], g[np.uint64(11)], g[np.uint64(13)]
    atom_ids[i, _NONE], atom_ids[i, _ONE], atom_ids[i, _TWO] = t0, t1, t2
    atom_ids[i, _THREE], atom_ids[i, _FOUR] = t3, t4
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
    table: Int32Array,
    inverses: Float32Array,
    atoms: FixedRows,
    atom_scales: Float32Array,
    scratch: Scratch,
    atom_ids: Int32Array,
    values: Float32Array,
    i: Index,
) -> None:
    """The code of one descriptor with any number of atoms."""
    nonzeros, c = np.uint64(atom_ids.shape[1]), scratch.correlations
    for first in range(_NONE, nonzeros, _BATCH):
        for column in range(_NONE, np.uint64(directions.shape[1]), _LANES):
            dot_atoms(directions, row, atoms, table, leaf, first, BATCH, column, scratch)
    for a in range(nonzeros):
        atom_ids[i, a] = table[leaf, a]
        c[a] = _correlation(np.uint64(table[leaf, a]), scratch.products[a], step, atom_scales)
        values[i, a] = 0
    place = _NONE
    for a in range(nonzeros):
        values[i, a] += inverses[leaf, place] * c[a]
        place += _ONE
        for b in range(a + _ONE, nonzeros):
            values[i, a] += inverses[leaf, place] * c[b]
            values[i, b] += inverses[leaf, place] * c[a]
            place += _ONE


@part
def solve_block(
    directions: Directions,
    first_row: Index,
    steps: Float32Array,
    leaf_ids: Int32Array,
    start: Index,
    end: Index,
    table: Int32Array,
    inverses: Float32Array,
    atoms: FixedRows,
    atom_scales: Float32Array,
    scratch: Scratch,
    atom_ids: Int32Array,
    values: Float32Array,
) -> None:
    """Atom ids and values of descriptors `start` to `end`, see `solve_codes`.

    Their directions are the rows from `first_row`; `scratch` is for m nonzeros.
    """
    nonzeros = np.uint64(atom_ids.shape[1])
    inverse_bytes = np.uint64(4 * inverses.shape[1])
    for i in range(start, end):
        leaf = np.uint64(leaf_ids[i])
        prefetch(table, leaf, _NONE)
        for offset in range(_NONE, inverse_bytes, _LINE):
            prefetch(inverses, leaf, offset)
    for i in range(start, end):
        leaf = np.uint64(leaf_ids[i])
        for a in range(nonzeros):
            prefetch_lanes(atoms, np.uint64(table[leaf, a]))
    for i in range(start, end):
        if nonzeros == _FIVE:
            _code_five(
                directions,
                first_row + i - start,
                steps[i],
                np.uint64(leaf_ids[i]),
                table,
                inverses,
                atoms,
                atom_scales,
                scratch,
                atom_ids,
                values,
                i,
            )
        else:
            _code_any(
                directions,
                first_row + i - start,
                steps[i],
                np.uint64(leaf_ids[i]),
                table,
                inverses,
                atoms,
                atom_scales,
                scratch,
                atom_ids,
                values,
                i,
            )


@kernel
def solve_codes(
    directions: Directions,
    steps: Float32Array,
    leaf_ids: Int32Array,
    table: Int32Array,
    inverses: Float32Array,
    atoms: FixedRows,
    atom_scales: Float32Array,
    scratch: Scratch,
    atom_ids: Int32Array,
    values: Float32Array,
) -> None:
    """Atom ids and values of every descriptor.

    directions (n, w) and steps (n,) are the descriptors; leaf_ids (n,); table (leaves, ≥m),
    padded to whole batches, and the upper triangles of the inverse Gram matrices, inverses
    (leaves, ≥m(m+1)/2), padded to whole cache lines; atoms (K, w) in fixed point with their
    scales, atom_scales (K,); scratch for m nonzeros -> atom_ids (n, m), values (n, m).
    """
    n = np.uint64(directions.shape[0])
    for start in range(_NONE, n, BLOCK):
        solve_block(
            directions,
            start,
            steps,
            leaf_ids,
            start,
            min(start + BLOCK, n),
            table,
            inverses,
            atoms,
            atom_scales,
            scratch,
            atom_ids,
            values,
        )
