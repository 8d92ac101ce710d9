"""The binary tree that sends each descriptor to a leaf (section 2.3).

A complete tree in flat arrays: node i has children 2i + 1 and 2i + 2, leaves are
numbered from the left. A branch that stopped early has zero vectors below it,
which send everything left, so that its leaf is the leftmost one at the bottom.
Decisions are made in fixed point; training sees them as float32.
"""

from dataclasses import dataclass, replace

import numpy as np

from service.engine.arrays import FixedRows, Float32Array, Int32Array, frozen
from service.engine.fixedpoint import Descriptors, block_scratch, is_wide, quantise_rows, unit_of
from service.engine.kernels.tree import walk

__all__ = ["Tree", "norms_of"]

# Of leaves, in a table that nobody will read.
_NO_ROWS = frozen(np.zeros((0, 1), np.uint16))


@dataclass(frozen=True)
class Tree:
    """Directions (2**depth - 1, w) in fixed point and cuts (2**depth - 1,), read-only.

    A descriptor goes right where the product of its direction with the node's exceeds the
    node's cut times the norm of the descriptor's direction. Columns from `width` on are padding;
    without `width` there are none.
    """

    directions: FixedRows
    cuts: Float32Array
    width: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "directions", frozen(self.directions))
        object.__setattr__(self, "cuts", frozen(self.cuts))

    @classmethod
    def from_floats(
        cls, vectors: Float32Array, thresholds: Float32Array, *, wide: bool = True
    ) -> "Tree":
        """The tree that goes right where x·v > t‖x‖: vectors (nodes, d), thresholds (nodes,)."""
        directions, scales = quantise_rows(vectors, wide=wide)
        # The threshold of a zero vector is kept: it decides with the zero on the other side.
        cuts = thresholds / np.where(scales > 0, scales, 1)
        return cls(directions, cuts.astype(np.float32), vectors.shape[1])

    @property
    def wide(self) -> bool:
        """Whether descriptors are routed by 16-bit directions."""
        return is_wide(self.directions)

    def widened(self) -> "Tree":
        """The same decisions, for descriptors that cannot be narrow."""
        return replace(self, directions=self.directions.astype(np.int16))

    @property
    def vectors(self) -> Float32Array:
        """Decision vectors, at the scale that the thresholds are for."""
        return self.directions[:, : self.width].astype(np.float32) / self._unit

    @property
    def thresholds(self) -> Float32Array:
        """What a descriptor's product with the vector must exceed, by its length, to go right."""
        return np.where(self.directions.any(axis=1), self.cuts / self._unit, self.cuts)

    @property
    def _unit(self) -> np.float32:
        return np.float32(unit_of(self.directions))

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
        leaf_ids, scratch = np.empty(len(descriptors), np.int32), block_scratch()
        for rows, part in descriptors.parts(wide=self.wide):
            walk(
                part.directions,
                part.norms,
                self.directions,
                self.cuts,
                self.depth,
                scratch,
                leaf_ids[rows],
                _NO_ROWS,
            )
        return leaf_ids

    def tensors(self) -> dict[str, FixedRows | Float32Array]:
        """The tensors that a bundle stores of the tree, by name."""
        return {"tree_vectors": self.directions, "tree_thresholds": self.cuts}


def norms_of(descriptors: Float32Array) -> Float32Array:
    """Euclidean norms (n,) of descriptors (n, d); not finite if a value is not."""
    norms: Float32Array = np.sqrt(np.einsum("ij,ij->i", descriptors, descriptors))
    return norms
