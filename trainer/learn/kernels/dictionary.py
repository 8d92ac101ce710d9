"""Sums over codes that the dictionary update and its error need."""

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array, Int32Array
from service.engine.compiling import allocating_kernel, kernel

__all__ = ["accumulate_normal_equations", "measure_residuals", "subtract_reconstructions"]


@kernel
def accumulate_normal_equations(
    descriptors: Float32Array,
    atom_ids: Int32Array,
    values: npt.NDArray[np.floating],
    moments: Float64Array,
    products: Float64Array,
) -> None:
    """Add Σ zzᵀ to moments (K, K) and Σ zxᵀ to products (K, d)."""
    n, nonzeros = atom_ids.shape
    width = descriptors.shape[1]
    for i in range(n):
        for a in range(nonzeros):
            row = atom_ids[i, a]
            for b in range(nonzeros):
                moments[row, atom_ids[i, b]] += np.float64(values[i, a]) * values[i, b]
            for k in range(width):
                products[row, k] += np.float64(values[i, a]) * descriptors[i, k]


@allocating_kernel
def measure_residuals(
    descriptors: Float32Array,
    atom_ids: Int32Array,
    values: Float32Array,
    dictionary: Float32Array,
    energies: Float32Array,
) -> None:
    """Squared norm of x - Wz for every descriptor -> energies (n,)."""
    n, nonzeros = atom_ids.shape
    width = descriptors.shape[1]
    residual = np.empty(width, np.float32)
    for i in range(n):
        for k in range(width):
            residual[k] = descriptors[i, k]
        for a in range(nonzeros):
            for k in range(width):
                residual[k] -= values[i, a] * dictionary[atom_ids[i, a], k]
        total = np.float32(0)
        for k in range(width):
            total += residual[k] * residual[k]
        energies[i] = total


@kernel
def subtract_reconstructions(
    atom_ids: Int32Array, values: Float32Array, dictionary: Float32Array, points: Float32Array
) -> None:
    """Subtract Wz from every point (n, d), in place."""
    n, nonzeros = atom_ids.shape
    for i in range(n):
        for a in range(nonzeros):
            for k in range(points.shape[1]):
                points[i, k] -= values[i, a] * dictionary[atom_ids[i, a], k]
