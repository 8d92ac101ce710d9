"""The binary tree that sends each descriptor to a leaf (section 2.3).

A complete tree in flat arrays: node i has children 2i + 1 and 2i + 2, leaves are
numbered from the left. A branch that stopped early has zero vectors below it,
which send everything left, so that its leaf is the leftmost one at the bottom.
Decisions are made in fixed point; training sees them as float32.
"""

from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float32Array, Int16Array, Int32Array, frozen
from service.engine.fixedpoint import UNIT, Descriptors, quantise_rows
from service.engine.kernels.tree import walk

__all__ = ["Tree", "norms_of"]

_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Tree:
    """Directions (2**depth - 1, w) and cuts (2**depth - 1,) in fixed point, read-only.

    A descriptor goes right where the product of its direction with the node's exceeds the
    node's cut. Columns from `width` on are padding; without `width` there are none.
    """

    directions: Int16Array
    cuts: Int32Array
    width: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "directions", frozen(self.directions))
        object.__setattr__(self, "cuts", frozen(self.cuts))

    @classmethod
    def from_floats(cls, vectors: Float32Array, thresholds: Float32Array) -> "Tree":
        """The tree that goes right where x·v > t‖x‖: vectors (nodes, d), thresholds (nodes,)."""
        directions, lengths = quantise_rows(vectors)
        # The cosine of the angle is compared, so a vector's length divides its threshold.
        # That of a zero vector is kept: it decides with the zero on the other side.
        cosines = (thresholds / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        cuts = np.floor(cosines.astype(np.float64) * UNIT**2).clip(-_LIMIT, _LIMIT)
        return cls(directions, cuts.astype(np.int32), vectors.shape[1])

    @property
    def vectors(self) -> Float32Array:
        """Decision vectors of unit length, or zero."""
        return self.directions[:, : self.width].astype(np.float32) / np.float32(UNIT)

    @property
    def thresholds(self) -> Float32Array:
        """The cosine that a descriptor must exceed to go right."""
        return (self.cuts / float(UNIT**2)).astype(np.float32)

    @property
    def depth(self) -> int:
        """Number of decisions from the root to a leaf."""
        return int(self.cuts.shape[0]).bit_length()

    @property
    def n_leaves(self) -> int:
        """Leaves at the bottom, one more than the nodes."""
        return int(self.cuts.shape[0]) + 1

    def route(self, descriptors: Float32Array | Descriptors) -> Int32Array:
        """Leaf ids (n,) of n descriptors."""
        descriptors = Descriptors.of(descriptors)
        leaf_ids = np.empty(len(descriptors), np.int32)
        for rows, part in descriptors.parts():
            walk(*part.fixed, self.directions, self.cuts, self.depth, leaf_ids[rows])
        return leaf_ids

    def tensors(self) -> dict[str, Int16Array | Int32Array]:
        """The tensors that a bundle stores of the tree, by name."""
        return {"tree_vectors": self.directions, "tree_thresholds": self.cuts}


def norms_of(descriptors: Float32Array) -> Float32Array:
    """Euclidean norms (n,) of descriptors (n, d); not finite if a value is not."""
    norms: Float32Array = np.sqrt(np.einsum("ij,ij->i", descriptors, descriptors))
    return norms
