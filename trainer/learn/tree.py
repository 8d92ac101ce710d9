"""The 2-means tree with splits at the median angle (section 2.3).

Level by level, all nodes of a level in parallel. Each node owns a contiguous run of
one shared order of the descriptors, which a split rearranges in place. The top of a large tree
is built from some of the descriptors, and what is below each of its leaves from all that get
there: so a cluster builds the same tree, whose descriptors are never all in one place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, frozen
from service.engine.tree import Tree, norms_of
from trainer.errors import DataError
from trainer.learn.kernels.splitting import split_node
from trainer.parallel import map_ordered

__all__ = [
    "TreeSettings",
    "build_tree",
    "grow_below",
    "grow_tree",
    "joined_tree",
    "require_enough",
    "top_depth",
    "top_step",
]

# Descriptors that the top of a tree is built from, at most.
_TOP_SAMPLE = 100_000

# Descriptors that a subtree below the top has about, and how many levels a top has at most. They
# depend on the descriptors alone, so that models do not depend on who builds them.
_PER_SUBTREE = 2**15
_DEEPEST_TOP = 6


@dataclass(frozen=True)
class TreeSettings:
    """Depth, rounds of 2-means per split, and the radius within which a node is not split.

    Decisions are `wide` or narrow, see `engine/fixedpoint.py`.
    """

    depth: int
    rounds: int = 2
    radius: float = 0.0
    wide: bool = True


@dataclass(frozen=True)
class _Node:
    number: int
    members: Int32Array


def build_tree(descriptors: Float32Array, settings: TreeSettings) -> Tree:
    """A tree for descriptors (n, d), of which there must be at least one per leaf."""
    n = descriptors.shape[0]
    require_enough(n, settings.depth)
    levels = top_depth(n, settings.depth)
    if not levels:
        return grow_tree(descriptors, settings)
    some = np.ascontiguousarray(descriptors[:: top_step(n)])
    return grow_below(grow_tree(some, replace(settings, depth=levels)), descriptors, settings)


def top_depth(n_descriptors: int, depth: int) -> int:
    """Levels of the top of a tree of this depth; below it is a level at least, if there is one."""
    wanted = (n_descriptors // _PER_SUBTREE).bit_length()
    return min(wanted, _DEEPEST_TOP, max(depth - 1, 0))


def top_step(n_descriptors: int) -> int:
    """The top is built from every so many-th descriptor, the first among them."""
    return -(-n_descriptors // _TOP_SAMPLE)


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
    every = np.arange(descriptors.shape[0], dtype=np.int32)
    return _grow(descriptors, settings, [_Node(0, every)])


def grow_below(top: Tree, descriptors: Float32Array, settings: TreeSettings) -> Tree:
    """A tree that begins with the decisions of a top, which may be of other descriptors."""
    leaf_ids = top.route(descriptors)
    order = np.argsort(leaf_ids, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(leaf_ids, minlength=top.n_leaves))[:-1]
    first = top.n_leaves - 1
    level = [_Node(first + leaf, own) for leaf, own in enumerate(np.split(order, ends))]
    below = _grow(descriptors, settings, level)
    return replace(
        below,
        directions=np.concatenate([top.directions, below.directions[first:]]),
        cuts=np.concatenate([top.cuts, below.cuts[first:]]),
    )


def _grow(descriptors: Float32Array, settings: TreeSettings, level: list[_Node]) -> Tree:
    """What is at and below the nodes of a level; everything above them is zero."""
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

    for depth in range(len(level).bit_length() - 1, settings.depth):
        title = f"tree level {depth + 1}/{settings.depth}"
        level = [child for pair in map_ordered(split, level, title) for child in pair]
    return Tree.from_floats(vectors, thresholds, wide=settings.wide)
