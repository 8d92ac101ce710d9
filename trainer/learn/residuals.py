"""What a block of residuals needs to know: means of the nodes, and a projection for each.

Both come from the descriptors that the tree was built from. A node's mean is that of its
descriptors' directions, weighed by their lengths, so that its residuals add up to nothing over
the training data. Its projection keeps the directions in which its residuals vary most and
scales each to a variance of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float32Array, Float64Array, Int32Array, IntpArray
from service.engine.blocks import ResidualsBlock
from service.engine.config import ResidualsConfig
from service.engine.tree import Tree, norms_of
from trainer.parallel import map_ordered, one_blas_thread

__all__ = ["NodeMoments", "NodeSums", "Nodes", "block_of", "learn_residuals", "levels_of"]

# Part of a node's covariance that is the mean of all nodes', for nodes with few descriptors.
_SHARED = 0.1

# Of a direction of length one: smaller variances are noise and are not scaled up.
_SMALLEST_VARIANCE = 1e-8

_TINY = float(np.finfo(np.float64).tiny)


def learn_residuals(
    descriptors: Float32Array, tree: Tree, config: ResidualsConfig
) -> ResidualsBlock:
    """The block for descriptors (n, 128) that the tree was built from."""
    leaf_ids, lengths = tree.route(descriptors), norms_of(descriptors)
    learned = []
    with one_blas_thread():
        for level in levels_of(config):
            nodes = leaf_ids >> (tree.depth - level)
            level_nodes = Nodes.of(descriptors, lengths, nodes, 2**level)
            found = list(map_ordered(level_nodes.moments, range(2**level), "means of nodes"))
            learned.append(found)
    return block_of(config, learned)


def levels_of(config: ResidualsConfig) -> list[int]:
    """The levels of the tree whose nodes the block knows, in its order."""
    return sorted(set(config.levels))


@dataclass(frozen=True)
class NodeSums:
    """Sum of the lengths of a node's descriptors, and of the descriptors (d,) themselves."""

    mass: float
    total: Float64Array

    def __add__(self, other: "NodeSums") -> "NodeSums":
        return NodeSums(self.mass + other.mass, self.total + other.total)

    @property
    def mean(self) -> Float32Array:
        """The mean direction (d,), weighed by lengths."""
        mean: Float32Array = (self.total / max(self.mass, _TINY)).astype(np.float32)
        return mean


@dataclass(frozen=True)
class NodeMoments:
    """Sum of lengths, mean direction (d,), and sum of outer products (d, d), all by length."""

    mass: float
    mean: Float32Array
    scatter: Float64Array


@dataclass(frozen=True)
class Nodes:
    """Descriptors (n, d) and their lengths (n,), and where those of each node are."""

    descriptors: Float32Array
    lengths: Float32Array
    members: list[IntpArray]

    @classmethod
    def of(
        cls, descriptors: Float32Array, lengths: Float32Array, nodes: Int32Array, count: int
    ) -> "Nodes":
        """The descriptors of nodes numbered below `count`; nodes (n,) has the number of each."""
        order = np.argsort(nodes, kind="stable")
        ends = np.searchsorted(nodes[order], np.arange(1, count))
        return cls(descriptors, lengths, np.split(order, ends))

    def sums(self, node: int) -> NodeSums:
        """What the mean of a node is made of; sums over parts of its descriptors add up."""
        own, lengths = self.descriptors[self.members[node]], self.lengths[self.members[node]]
        return NodeSums(float(lengths.sum()), own.sum(axis=0, dtype=np.float64))

    def scatter(self, node: int, mean: Float32Array) -> Float64Array:
        """Outer products (d, d) of a node's residuals; those of parts add up too."""
        own, lengths = self.descriptors[self.members[node]], self.lengths[self.members[node]]
        # √l·(x/l - mean) = x/√l - √l·mean; nothing for a descriptor of no length.
        roots = np.sqrt(lengths)[:, None]
        residuals = np.divide(own, roots, out=np.zeros_like(own), where=roots > 0)
        residuals -= roots * mean
        return (residuals.T @ residuals).astype(np.float64)

    def moments(self, node: int) -> NodeMoments:
        """All of a node's moments, where all of its descriptors are here."""
        sums = self.sums(node)
        return NodeMoments(sums.mass, sums.mean, self.scatter(node, sums.mean))


def block_of(config: ResidualsConfig, learned: Sequence[Sequence[NodeMoments]]) -> ResidualsBlock:
    """The block, from the moments of all nodes of each of its levels."""
    means = [moments.mean for level in learned for moments in level]
    with one_blas_thread():  # matrices this small take ten times longer on two threads
        projections = [_projections(level, config.components) for level in learned]
    return ResidualsBlock.from_floats(config, np.stack(means), np.concatenate(projections))


def _projections(level: Sequence[NodeMoments], components: int) -> Float32Array:
    """Projections (nodes, d, components) of one level."""
    masses = np.array([node.mass for node in level])
    shared = sum(node.scatter for node in level) / max(masses.sum(), _TINY)
    return np.stack(
        [
            _whitening(
                (1 - _SHARED) * node.scatter / max(node.mass, _TINY) + _SHARED * shared, components
            )
            for node in level
        ]
    )


def _whitening(covariance: Float64Array, components: int) -> Float32Array:
    """The leading eigenvectors (d, components), each divided by its standard deviation."""
    variances, vectors = np.linalg.eigh(covariance)
    leading = np.argsort(variances)[::-1][:components]
    scaled = vectors[:, leading] / np.sqrt(np.maximum(variances[leading], _SMALLEST_VARIANCE))
    projection: Float32Array = scaled.astype(np.float32)
    return projection
