"""How much of each descriptor every group can represent (section 2.1, equation 2).

With FᵀF the inverse Gram matrix of a group's atoms, the projection onto their span has
the energy ‖F·W_Gᵀx‖². All groups share the products Wᵀx, so that a group costs m² + m
multiply-adds a descriptor instead of the m·d of a projection.
"""

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float64Array, Int32Array
from service.engine.compiling import allocating_kernel

__all__ = ["add_projection_energies"]


@allocating_kernel
def add_projection_energies(
    correlations: npt.NDArray[np.floating],
    bucket_ids: Int32Array,
    table: Int32Array,
    factors: npt.NDArray[np.floating],
    energies: Float64Array,
) -> None:
    """Add the energy of every descriptor's projection to its bucket, group by group.

    correlations (K, n), atoms first so that the loops run along descriptors;
    bucket_ids (n,); table (L, m); factors (L, m, m) -> energies (L, buckets).
    """
    n = correlations.shape[1]
    n_groups, nonzeros = table.shape
    coordinate = np.empty(n, correlations.dtype)
    energy = np.empty(n, correlations.dtype)
    for group in range(n_groups):
        energy[:] = 0
        for a in range(nonzeros):
            coordinate[:] = 0
            for b in range(nonzeros):
                weight = factors[group, a, b]
                row = correlations[table[group, b]]
                for i in range(n):
                    coordinate[i] += weight * row[i]
            for i in range(n):
                energy[i] += coordinate[i] * coordinate[i]
        for i in range(n):
            energies[group, bucket_ids[i]] += energy[i]
