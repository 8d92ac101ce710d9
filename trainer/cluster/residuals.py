"""Blocks of residuals from the descriptors of a scattered tree.

A node may have its descriptors on one worker or, if it is above the subtrees, on several: the sums
that its mean and its projection are made of are added up, in two rounds.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from service.engine.arrays import Float32Array, Float64Array
from service.engine.blocks import ResidualsBlock
from service.engine.config import ResidualsConfig
from service.engine.tree import norms_of
from trainer.cluster.subtrees import ScatteredTree, Subtree
from trainer.cluster.tasks import Tasks
from trainer.learn.residuals import NodeMoments, Nodes, NodeSums, block_of, levels_of

__all__ = ["learn_scattered_residuals"]

Sum = TypeVar("Sum")


def learn_scattered_residuals(
    tasks: Tasks, tree: ScatteredTree, config: ResidualsConfig
) -> ResidualsBlock:
    """The block that `learn_residuals` makes of descriptors on one machine."""
    learned = []
    for level in levels_of(config):
        below = max(0, level - tree.top_depth)
        sums = tasks.each(_sums, tree.subtrees, below)
        nodes = _by_node(list(tasks.results(sums, "means of nodes")), level)
        means = np.stack([node.mean for node in nodes])
        own = np.repeat(means, max(1, len(tree.subtrees) // len(means)), axis=0)
        parts = np.split(own, len(tree.subtrees))
        futures = tasks.map(_scatters, tree.subtrees, parts, [below] * len(parts))
        scatters = _by_node(list(tasks.results(futures, "projections")), level)
        learned.append(
            [
                NodeMoments(node.mass, mean, scatter)
                for node, mean, scatter in zip(nodes, means, scatters, strict=True)
            ]
        )
    return block_of(config, learned)


def _by_node(found: Sequence[Sequence[Sum]], level: int) -> list[Sum]:
    """What the subtrees found, added up where a node has several of them."""
    flat: list[Any] = [each for own in found for each in own]
    share = len(flat) // 2**level
    return [sum(flat[i + 1 : i + share], flat[i]) for i in range(0, len(flat), share)]


# What workers run.


def _nodes(subtree: Subtree, level: int) -> Nodes:
    groups = subtree.points.groups
    numbers = groups.leaf_ids >> (subtree.tree.depth - level)
    return Nodes.of(groups.descriptors, norms_of(groups.descriptors), numbers, 2**level)


def _sums(subtree: Subtree, level: int) -> list[NodeSums]:
    nodes = _nodes(subtree, level)
    return [nodes.sums(node) for node in range(2**level)]


def _scatters(subtree: Subtree, means: Float32Array, level: int) -> list[Float64Array]:
    nodes = _nodes(subtree, level)
    return [nodes.scatter(node, mean) for node, mean in enumerate(means)]
