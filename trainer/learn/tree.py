"""The 2-means tree with splits at the median angle (section 2.3).

Level by level, all nodes of a level in parallel. Each node owns a contiguous run of
one shared order of the descriptors, which a split rearranges in place. Descriptors that are
not all in one place share the top of the tree, built from some of them, and what is below
each of its leaves is built where the descriptors of that leaf are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, frozen
from service.engine.tree import Tree, norms_of
from trainer.errors import DataError
from trainer.learn.kernels.splitting import split_node
from trainer.parallel import map_ordered

__all__ = ["TreeSettings", "build_tree", "grow_tree", "joined_tree", "require_enough"]


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


def build_tree(descriptors: Float32Array, settings: TreeSettings, top: Tree | None = None) -> Tree:
    """A tree for descriptors (n, d), of which there must be at least one per leaf.

    With a `top`, which may be of other descriptors, its decisions come first, and the rest is
    built below its leaves.
    """
    require_enough(descriptors.shape[0], settings.depth)
    if top is None:
        return grow_tree(descriptors, settings)
    leaf_ids = top.route(descriptors)
    below = replace(settings, depth=settings.depth - top.depth)
    parts = (descriptors[leaf_ids == leaf] for leaf in range(top.n_leaves))
    return joined_tree(top, [grow_tree(part, below) for part in parts])


def require_enough(n_descriptors: int, depth: int) -> None:
    """Reject a tree that would have more leaves than descriptors."""
    if n_descriptors < 2**depth:
        raise DataError(
            f"{n_descriptors} descriptors are fewer than the {2**depth} leaves of a tree "
            f"of depth {depth}; use more images, more samples or a smaller depth"
        )


def joined_tree(top: Tree, subtrees: Sequence[Tree]) -> Tree:
    """One tree of a top and what is below each of its leaves, all of one depth."""
    levels = [slice(2**level - 1, 2 ** (level + 1) - 1) for level in range(subtrees[0].depth)]
    directions = [below.directions[nodes] for nodes in levels for below in subtrees]
    cuts = [below.cuts[nodes] for nodes in levels for below in subtrees]
    return replace(
        top,
        directions=np.concatenate([top.directions, *directions]),
        cuts=np.concatenate([top.cuts, *cuts]),
    )


def grow_tree(descriptors: Float32Array, settings: TreeSettings) -> Tree:
    """A tree for any number of descriptors (n, d); branches without two of them end early."""
    n_leaves = 2**settings.depth
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
