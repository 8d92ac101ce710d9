"""Values of a code: the leaf's atoms, and its cached inverse Gram matrix.

z = (WᵀW)⁻¹(Wᵀx) over the active set (section 2.3). Caching the small inverse Gram
matrix and sharing the dictionary costs 2m·d + m² multiply-adds against m·d for a
pseudo-inverse per leaf, but its tables stay in the cache. What a leaf needs lies in two
cache lines that are fetched for a block of descriptors before the first is coded.
"""

import numpy as np

from service.engine.arrays import Float32Array, Int16Array, Int32Array
from service.engine.compiling import kernel
from service.engine.kernels.integers import CACHE_LINE, LANES, dot, prefetch

__all__ = ["solve_codes"]

_BLOCK = 16
_LANES = np.uint64(LANES)
_LINE = np.uint64(CACHE_LINE)
_ONE = np.uint64(1)
_NONE = np.uint64(0)


@kernel
def solve_codes(
    directions: Int16Array,
    lengths: Float32Array,
    leaf_ids: Int32Array,
    table: Int32Array,
    inverses: Float32Array,
    atoms: Int16Array,
    atom_scales: Float32Array,
    atom_ids: Int32Array,
    values: Float32Array,
) -> None:
    """Atom ids and values of every descriptor.

    directions (n, w) and lengths (n,) are the descriptors; leaf_ids (n,); table (leaves, ≥m)
    and the upper triangles of the inverse Gram matrices, inverses (leaves, ≥m(m+1)/2),
    padded to whole cache lines; atoms (K, w) with the number that makes a product of
    integers a correlation, atom_scales (K,) -> atom_ids (n, m), values (n, m).
    """
    n = np.uint64(directions.shape[0])
    width = np.uint64(directions.shape[1])
    nonzeros = np.uint64(atom_ids.shape[1])
    inverse_bytes = np.uint64(4 * inverses.shape[1])
    correlations = np.empty(nonzeros, np.float32)
    for start in range(_NONE, n, np.uint64(_BLOCK)):
        end = min(start + np.uint64(_BLOCK), n)
        for i in range(start, end):
            leaf = np.uint64(leaf_ids[i])
            prefetch(table, leaf, _NONE)
            for offset in range(_NONE, inverse_bytes, _LINE):
                prefetch(inverses, leaf, offset)
        for i in range(start, end):
            leaf = np.uint64(leaf_ids[i])
            for a in range(nonzeros):
                atom = np.uint64(table[leaf, a])
                product = 0
                if width == _LANES:
                    product = dot(directions, i, atoms, atom, _NONE)
                else:
                    for column in range(_NONE, width, _LANES):
                        product += dot(directions, i, atoms, atom, column)
                correlations[a] = np.float32(product) * atom_scales[atom] * lengths[i]
                atom_ids[i, a] = table[leaf, a]
                values[i, a] = 0
            place = _NONE
            for a in range(nonzeros):
                values[i, a] += inverses[leaf, place] * correlations[a]
                place += _ONE
                for b in range(a + _ONE, nonzeros):
                    values[i, a] += inverses[leaf, place] * correlations[b]
                    values[i, b] += inverses[leaf, place] * correlations[a]
                    place += _ONE
