"""The 2-means tree with splits at the median angle (section 2.3).

Level by level, all nodes of a level in parallel. Each node owns a contiguous run of
one shared order of the descriptors, which a split rearranges in place.
"""

from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, frozen
from service.engine.tree import Tree, norms_of
from trainer.errors import DataError
from trainer.learn.kernels.splitting import split_node
from trainer.parallel import map_ordered

__all__ = ["TreeSettings", "build_tree"]


@dataclass(frozen=True)
class TreeSettings:
    """Depth, rounds of 2-means per split, and the radius within which a node is not split."""

    depth: int
    rounds: int = 2
    radius: float = 0.0


@dataclass(frozen=True)
class _Node:
    number: int
    members: Int32Array


def build_tree(descriptors: Float32Array, settings: TreeSettings) -> Tree:
    """A tree for descriptors (n, d), of which there must be at least one per leaf."""
    n_leaves = 2**settings.depth
    if descriptors.shape[0] < n_leaves:
        raise DataError(
            f"{descriptors.shape[0]} descriptors are fewer than the {n_leaves} leaves of a tree "
            f"of depth {settings.depth}; use more images, more samples or a smaller depth"
        )
    vectors = np.zeros((n_leaves - 1, descriptors.shape[1]), np.float32)
    thresholds = np.zeros(n_leaves - 1, np.float32)
    norms = frozen(norms_of(descriptors))
    descriptors = frozen(descriptors)

    def split(node: _Node) -> list[_Node]:
        left, threshold = split_node(
            descriptors,
            norms,
            node.members,
            settings.rounds,
            settings.radius,
            vectors[node.number],
        )
        thresholds[node.number] = threshold
        if left == len(node.members):  # not split: everything below stays zero
            return []
        return [
            _Node(2 * node.number + 1, node.members[:left]),
            _Node(2 * node.number + 2, node.members[left:]),
        ]

    level = [_Node(0, np.arange(descriptors.shape[0], dtype=np.int32))]
    for depth in range(settings.depth):
        title = f"tree level {depth + 1}/{settings.depth}"
        level = [child for pair in map_ordered(split, level, title) for child in pair]
    return Tree.from_floats(vectors, thresholds)
