"""What a descriptor costs in a leaf, and where it ends from any node of the tree."""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array
from service.engine.compiling import kernel

__all__ = ["measure_coding_errors", "walk_from"]


@kernel
def walk_from(
    descriptors: Float32Array,
    norms: Float32Array,
    vectors: Float32Array,
    thresholds: Float32Array,
    nodes: Int32Array,
    leaf_ids: Int32Array,
) -> None:
    """Leaf of every descriptor that starts at its own node instead of the root.

    descriptors (n, d); norms, nodes (n,); vectors (inner nodes, d) -> leaf_ids (n,).
    """
    n_inner, width = vectors.shape
    for i in range(descriptors.shape[0]):
        node = nodes[i]
        while node < n_inner:
            projection = np.float32(0)
            for k in range(width):
                projection += descriptors[i, k] * vectors[node, k]
            node = 2 * node + 1 + (projection > thresholds[node] * norms[i])
        leaf_ids[i] = node - n_inner


@kernel
def measure_coding_errors(
    descriptors: Float32Array,
    leaf_ids: Int32Array,
    table: Int32Array,
    dictionary: Float32Array,
    inverse_grams: Float32Array,
    energies: Float32Array,
) -> None:
    """‖x - Wz‖² = ‖x‖² - bᵀ(WᵀW)⁻¹b with b = Wᵀx, of every descriptor in its leaf.

    descriptors (n, d); leaf_ids (n,); table (leaves, m) -> energies (n,).
    """
    nonzeros, width = table.shape[1], descriptors.shape[1]
    correlations = np.empty(nonzeros, np.float32)
    for i in range(descriptors.shape[0]):
        leaf = leaf_ids[i]
        energy = np.float32(0)
        for k in range(width):
            energy += descriptors[i, k] * descriptors[i, k]
        for a in range(nonzeros):
            total = np.float32(0)
            for k in range(width):
                total += descriptors[i, k] * dictionary[table[leaf, a], k]
            correlations[a] = total
        for a in range(nonzeros):
            for b in range(nonzeros):
                energy -= correlations[a] * inverse_grams[leaf, a, b] * correlations[b]
        energies[i] = max(energy, np.float32(0))
