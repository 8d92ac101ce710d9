"""Where a descriptor ends that starts at any node of the tree."""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array
from service.engine.compiling import kernel

__all__ = ["walk_from"]


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
