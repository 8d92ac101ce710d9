"""Values of a code: the leaf's atoms, and its cached inverse Gram matrix.

z = (WᵀW)⁻¹(Wᵀx) over the active set (section 2.3). Caching the small inverse Gram
matrix and sharing the dictionary costs 2m·d + m² multiply-adds against m·d for a
pseudo-inverse per leaf, but its tables stay in the cache. What a leaf needs lies in two
cache lines that are fetched for a block of descriptors before the first is coded, then all
atoms of the block are, before the first product.
"""

import numpy as np

from service.engine.arrays import CACHE_LINE, Directions, FixedRows, Float32Array, Int32Array
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
    prefetch,
    prefetch_lanes,
)

__all__ = ["solve_block", "solve_codes"]

_LANES, _BATCH, _LINE = np.uint64(LANES), np.uint64(BATCH), np.uint64(CACHE_LINE)
_NONE, _ONE, _TWO, _THREE, _FOUR, _FIVE = (np.uint64(number) for number in range(6))


@part
def _solve_five(
    inverses: Float32Array, leaf: Index, c: Float32Array, values: Float32Array, i: Index
) -> None:
    """Solve for five atoms, the paper's number, without loops."""
    g = inverses[leaf]
    a, b, d, e, f = c[_NONE], c[_ONE], c[_TWO], c[_THREE], c[_FOUR]
    g1, g2, g3, g4 = g[_ONE], g[_TWO], g[_THREE], g[_FOUR]
    g6, g7, g8 = g[np.uint64(6)], g[np.uint64(7)], g[np.uint64(8)]
    g10, g11, g13 = g[np.uint64(10)], g[np.uint64(11)], g[np.uint64(13)]
    values[i, _NONE] = g[_NONE] * a + g1 * b + g2 * d + g3 * e + g4 * f
    values[i, _ONE] = g1 * a + g[_FIVE] * b + g6 * d + g7 * e + g8 * f
    values[i, _TWO] = g2 * a + g6 * b + g[np.uint64(9)] * d + g10 * e + g11 * f
    values[i, _THREE] = g3 * a + g7 * b + g10 * d + g[np.uint64(12)] * e + g13 * f
    values[i, _FOUR] = g4 * a + g8 * b + g11 * d + g13 * e + g[np.uint64(14)] * f


@part
def _solve(
    inverses: Float32Array, leaf: Index, c: Float32Array, values: Float32Array, i: Index
) -> None:
    """Fill row i of the values with z = (WᵀW)⁻¹c, of any number of atoms."""
    nonzeros, place = np.uint64(values.shape[1]), _NONE
    for a in range(nonzeros):
        values[i, a] = 0
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
    correlations: Float32Array,
    pairs: Pairs,
    atom_ids: Int32Array,
    values: Float32Array,
) -> None:
    """Atom ids and values of descriptors `start` to `end`, see `solve_codes`.

    Their directions are the rows from `first_row`; correlations (m,) and pairs (block·m,) are
    scratch.
    """
    width, nonzeros = np.uint64(directions.shape[1]), np.uint64(atom_ids.shape[1])
    inverse_bytes = np.uint64(4 * inverses.shape[1])
    for i in range(start, end):
        leaf = np.uint64(leaf_ids[i])
        prefetch(table, leaf, _NONE)
        for offset in range(_NONE, inverse_bytes, _LINE):
            prefetch(inverses, leaf, offset)
    count = _NONE
    for i in range(start, end):
        leaf = np.uint64(leaf_ids[i])
        for a in range(nonzeros):
            atom = np.uint64(table[leaf, a])
            prefetch_lanes(atoms, atom)
            atom_ids[i, a] = table[leaf, a]
            pairs.rows[count], pairs.others[count] = first_row + i - start, atom
            pairs.factors[count] = atom_scales[atom] * steps[i]
            count += _ONE
    end_batch(pairs, count)
    for first in range(_NONE, count, _BATCH):
        for column in range(_NONE, width, _LANES):
            add_dots(directions, atoms, pairs, first, column)
    pair = _NONE
    for i in range(start, end):
        for a in range(nonzeros):
            correlations[a] = np.float32(pairs.products[pair]) * pairs.factors[pair]
            pair += _ONE
        if nonzeros == _FIVE:
            _solve_five(inverses, np.uint64(leaf_ids[i]), correlations, values, i)
        else:
            _solve(inverses, np.uint64(leaf_ids[i]), correlations, values, i)


@kernel
def solve_codes(
    directions: Directions,
    steps: Float32Array,
    leaf_ids: Int32Array,
    table: Int32Array,
    inverses: Float32Array,
    atoms: FixedRows,
    atom_scales: Float32Array,
    atom_ids: Int32Array,
    values: Float32Array,
) -> None:
    """Atom ids and values of every descriptor.

    directions (n, w) and steps (n,) are the descriptors; leaf_ids (n,); table (leaves, ≥m)
    and the upper triangles of the inverse Gram matrices, inverses (leaves, ≥m(m+1)/2),
    padded to whole cache lines; atoms (K, w) in fixed point with their scales, atom_scales
    (K,) -> atom_ids (n, m), values (n, m).
    """
    n = np.uint64(directions.shape[0])
    correlations = np.empty(atom_ids.shape[1], np.float32)
    pairs = new_pairs(BLOCK * np.uint64(atom_ids.shape[1]))
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
            correlations,
            pairs,
            atom_ids,
            values,
        )
