"""The binary tree that sends each descriptor to a leaf (section 2.3).

A complete tree in flat arrays: node i has children 2i + 1 and 2i + 2, leaves are
numbered from the left. A branch that stopped early has zero vectors below it,
which send everything left, so that its leaf is the leftmost one at the bottom.
"""

from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, frozen
from service.engine.kernels.tree import measure_norms, walk

__all__ = ["Tree", "norms_of"]


@dataclass(frozen=True)
class Tree:
    """Decision vectors (2**depth - 1, d) and thresholds (2**depth - 1,), read-only."""

    vectors: Float32Array
    thresholds: Float32Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", frozen(self.vectors))
        object.__setattr__(self, "thresholds", frozen(self.thresholds))

    @property
    def depth(self) -> int:
        """Number of decisions from the root to a leaf."""
        return int(self.thresholds.shape[0]).bit_length()

    @property
    def n_leaves(self) -> int:
        """Leaves at the bottom, one more than the nodes."""
        return int(self.thresholds.shape[0]) + 1

    def route(self, descriptors: Float32Array, norms: Float32Array | None = None) -> Int32Array:
        """Leaf ids (n,) of descriptors (n, d); their norms are measured unless given."""
        leaf_ids = np.empty(descriptors.shape[0], np.int32)
        norms = norms_of(descriptors) if norms is None else norms
        walk(
            frozen(descriptors),
            frozen(norms),
            self.vectors,
            self.thresholds,
            self.depth,
            leaf_ids,
        )
        return leaf_ids

    def tensors(self) -> dict[str, Float32Array]:
        """What a bundle stores of it, by name."""
        return {"tree_vectors": self.vectors, "tree_thresholds": self.thresholds}


def norms_of(descriptors: Float32Array) -> Float32Array:
    """Euclidean norms (n,) of descriptors (n, d); not finite if a value is not."""
    norms = np.empty(descriptors.shape[0], np.float32)
    measure_norms(frozen(descriptors), norms)
    return norms
