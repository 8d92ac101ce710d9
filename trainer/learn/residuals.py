"""What a block of residuals needs to know: means of the nodes, and a projection for each.

Both come from the descriptors that the tree was built from. A node's mean is that of its
descriptors' directions, weighed by their lengths, so that its residuals add up to nothing over
the training data. Its projection keeps the directions in which its residuals vary most and
scales each to a variance of one.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from service.engine.arrays import Float32Array, Float64Array, Int32Array, IntpArray
from service.engine.blocks import ResidualsBlock
from service.engine.config import ResidualsConfig
from service.engine.tree import Tree, norms_of
from trainer.parallel import map_ordered, one_blas_thread

__all__ = ["learn_residuals"]

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
    with one_blas_thread():  # matrices this small take ten times longer on two threads
        for level in sorted(set(config.levels)):
            nodes = leaf_ids >> (tree.depth - level)
            learned.append(_learn_level(_Nodes.of(descriptors, lengths, nodes, 2**level), config))
    means, projections = (np.concatenate(parts) for parts in zip(*learned, strict=True))
    return ResidualsBlock.from_floats(config, means, projections)


@dataclass(frozen=True)
class _Nodes:
    """Descriptors (n, d) and their lengths (n,), and where those of each node are."""

    descriptors: Float32Array
    lengths: Float32Array
    members: list[IntpArray]

    @classmethod
    def of(
        cls, descriptors: Float32Array, lengths: Float32Array, nodes: Int32Array, count: int
    ) -> "_Nodes":
        order = np.argsort(nodes, kind="stable")
        ends = np.searchsorted(nodes[order], np.arange(1, count))
        return cls(descriptors, lengths, np.split(order, ends))


def _learn_level(nodes: _Nodes, config: ResidualsConfig) -> tuple[Float32Array, Float32Array]:
    """Means (nodes, d) and projections (nodes, d, components) of one level."""
    found = list(map_ordered(partial(_moments, nodes), nodes.members, "means of nodes"))
    masses = np.array([mass for mass, _, _ in found])
    shared = sum(covariance for _, _, covariance in found) / max(masses.sum(), _TINY)
    projections = [
        _whitening(
            (1 - _SHARED) * covariance / max(mass, _TINY) + _SHARED * shared, config.components
        )
        for mass, _, covariance in found
    ]
    return np.stack([mean for _, mean, _ in found]), np.stack(projections)


def _moments(nodes: _Nodes, members: IntpArray) -> tuple[float, Float32Array, Float64Array]:
    """Sum of lengths, mean direction (d,), and sum of outer products (d, d), all by length."""
    own, lengths = nodes.descriptors[members], nodes.lengths[members]
    mass = float(lengths.sum())
    mean = own.sum(axis=0, dtype=np.float64) / max(mass, _TINY)
    # √l·(x/l - mean) = x/√l - √l·mean; nothing for a descriptor of no length.
    roots = np.sqrt(lengths)[:, None]
    residuals = np.divide(own, roots, out=np.zeros_like(own), where=roots > 0)
    residuals -= roots * mean.astype(np.float32)
    return mass, mean.astype(np.float32), (residuals.T @ residuals).astype(np.float64)


def _whitening(covariance: Float64Array, components: int) -> Float32Array:
    """The leading eigenvectors (d, components), each divided by its standard deviation."""
    variances, vectors = np.linalg.eigh(covariance)
    leading = np.argsort(variances)[::-1][:components]
    scaled = vectors[:, leading] / np.sqrt(np.maximum(variances[leading], _SMALLEST_VARIANCE))
    projection: Float32Array = scaled.astype(np.float32)
    return projection
