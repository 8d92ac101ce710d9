"""What sends a descriptor to a leaf: the tree, or a projection hash (section 2.3).

Both are the paper's g behind one interface. A projection hash g(x) = s(h(Hx + b))
stores p directions instead of 2**p - 1 vectors; its buckets are numbered by their bits
and are called leaves here too, because all that follows treats them alike.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, Tensors, frozen
from service.engine.config import ViewConfig
from service.engine.fixedpoint import Descriptors
from service.engine.kernels.hashing import hash_bits
from service.engine.tree import Tree

__all__ = ["Hash", "HashFunction", "ProjectionHash", "hash_from_tensors"]


class HashFunction(Protocol):
    """The paper's g: descriptors to leaves."""

    @property
    def n_leaves(self) -> int:
        """Number of leaves; leaf ids are below it."""

    def route(self, descriptors: Float32Array | Descriptors) -> Int32Array:
        """Leaf ids (n,) of n descriptors."""


class Hash(HashFunction, Protocol):
    """A hash function that a bundle can hold."""

    def tensors(self) -> Tensors:
        """The tensors that a bundle stores of the hash, by name."""


@dataclass(frozen=True)
class ProjectionHash:
    """Directions (p, d) and offsets (p,), read-only; `periodic` for h = sin, else tanh."""

    directions: Float32Array
    offsets: Float32Array
    periodic: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "directions", frozen(self.directions))
        object.__setattr__(self, "offsets", frozen(self.offsets))

    @property
    def n_leaves(self) -> int:
        """Buckets, one for each combination of bits."""
        return int(2 ** self.offsets.shape[0])

    def route(self, descriptors: Float32Array | Descriptors) -> Int32Array:
        """Bucket ids (n,) of n descriptors."""
        if isinstance(descriptors, Descriptors):
            descriptors = descriptors.joined()
        leaf_ids = np.empty(descriptors.shape[0], np.int32)
        hash_bits(frozen(descriptors), self.directions, self.offsets, self.periodic, leaf_ids)
        return leaf_ids

    def tensors(self) -> Tensors:
        """The tensors that a bundle stores of the hash, by name."""
        return {"hash_directions": self.directions, "hash_offsets": self.offsets}


def hash_from_tensors(config: ViewConfig, tensors: Tensors) -> Hash:
    """The hash that a view's tensors hold; nothing is copied."""
    if config.hash == "tree":
        return Tree(tensors["tree_vectors"], tensors["tree_thresholds"])
    return ProjectionHash(
        tensors["hash_directions"], tensors["hash_offsets"], periodic=config.hash == "sine"
    )
