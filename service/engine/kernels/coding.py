"""Values of a code: the leaf's atoms, and its cached inverse Gram matrix.

z = (WᵀW)⁻¹(Wᵀx) over the active set (section 2.3). Caching the small inverse Gram
matrix and sharing the dictionary costs 2m·d + m² multiply-adds against m·d for a
pseudo-inverse per leaf, but its tables stay in the cache.
"""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array
from service.engine.compiling import kernel

__all__ = ["solve_codes"]


@kernel
def solve_codes(
    descriptors: Float32Array,
    leaf_ids: Int32Array,
    table: Int32Array,
    dictionary: Float32Array,
    inverse_grams: Float32Array,
    atom_ids: Int32Array,
    values: Float32Array,
) -> None:
    """Atom ids and values of every descriptor.

    descriptors (n, d); leaf_ids (n,); table (leaves, m); dictionary (K, d);
    inverse_grams (leaves, m, m) -> atom_ids (n, m), values (n, m).
    """
    n, width = descriptors.shape
    nonzeros = table.shape[1]
    correlations = np.empty(nonzeros, np.float32)
    for i in range(n):
        leaf = leaf_ids[i]
        for a in range(nonzeros):
            atom = table[leaf, a]
            atom_ids[i, a] = atom
            total = np.float32(0)
            for k in range(width):
                total += descriptors[i, k] * dictionary[atom, k]
            correlations[a] = total
        for a in range(nonzeros):
            total = np.float32(0)
            for b in range(nonzeros):
                total += inverse_grams[leaf, a, b] * correlations[b]
            values[i, a] = total
