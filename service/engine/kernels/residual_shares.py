"""What a score gains by each sum of residuals, and by each descriptor in it: for explanations.

A score is linear in the sums once the scales of their parts are known, so that all levels of the
pyramid give one weight for each total and mass.
"""

from typing import NamedTuple

import numpy as np

from service.engine.arrays import Directions, Float32Array, Int8Array, Int32Array
from service.engine.compiling import kernel, part
from service.engine.kernels.fixedpoint import BLOCK, Runs, quantise_block
from service.engine.kernels.integers import Index, Scratch
from service.engine.kernels.projecting import COMPONENTS, project_rows
from service.engine.kernels.residuals import MASS_UNIT, TOTAL_UNIT, in_sums, in_total

__all__ = ["GainsRoom", "share_residuals", "weigh_sums"]

_MASS = np.float32(MASS_UNIT)
_UNIT = np.float32(1 / TOTAL_UNIT)

_NONE, _ONE, _FOUR = np.uint64(0), np.uint64(1), np.uint64(4)
_COMPONENTS = np.uint64(COMPONENTS)


class GainsRoom(NamedTuple):
    """Memory that `weigh_sums` writes while it works.

    given (4, c); gains (levels, ≥regions, d) and offsets (levels, ≥regions), in whole fours.
    """

    given: Float32Array
    gains: Float32Array
    offsets: Float32Array

    @classmethod
    def of(cls, levels: int, regions: int, width: int, components: int) -> "GainsRoom":
        """Room for so many levels, regions of the finest one, and components."""
        rows = regions + -regions % 4
        return cls(
            np.empty((4, components), np.float32),
            np.empty((levels, rows, width), np.float32),
            np.empty((levels, rows), np.float32),
        )


@part
def _weigh_node(
    weights: Float32Array,
    part_scales: Float32Array,
    projections: Int8Array,
    node: Index,
    scales: Float32Array,
    mean: Float32Array,
    given: Float32Array,
    gains: Float32Array,
    offsets: Float32Array,
) -> None:
    """What a score gains by the totals and masses of one node, in each region of its level.

    weights (regions², c) and part_scales (regions²,) are those of the node's parts; projections
    (nodes, c, d) of all nodes, scales (c,) and mean (d,) its own; given (4, c) is scratch. gains
    (≥regions², d) and offsets (≥regions²,) are filled, by four regions at a time; to leave out
    those that are empty took longer. d is a multiple of `COMPONENTS`.
    """
    components, width = np.uint64(projections.shape[1]), np.uint64(projections.shape[2])
    regions = np.uint64(part_scales.shape[0])
    for first in range(_NONE, regions, _FOUR):
        for i in range(_FOUR):
            # The last one again, where there is none.
            region = first + i if first + i < regions else regions - _ONE
            for c in range(components):
                given[i, c] = part_scales[region] * scales[c] * weights[region, c]
        for k in range(_NONE, width, _COMPONENTS):
            project_rows(given, _NONE, projections, node, k, gains[first : first + _FOUR])
        for region in range(first, first + _FOUR):
            offset = np.float32(0)
            for k in range(width):
                offset += gains[region, k] * mean[k]
            offsets[region] = offset


@kernel
def weigh_sums(
    pyramid: Int32Array,
    levels: Int32Array,
    first_nodes: Int32Array,
    weights: Float32Array,
    part_scales: Float32Array,
    projections: Int8Array,
    scales: Float32Array,
    means: Float32Array,
    masses: Int32Array,
    room: "GainsRoom",
    total_weights: Float32Array,
    mass_weights: Float32Array,
) -> None:
    """What a score gains by each total and mass, through all levels of the pyramid together.

    pyramid, levels and first_nodes (L,) are the regions a side of each level, its level of the
    tree, and where the nodes of that begin among projections (n, c, d), scales (n, c) and means
    (n, d). weights (f,) are those of the block's entries, part_scales (f / c,) what its parts were
    multiplied with. total_weights (r², deepest nodes, d) and mass_weights (r², deepest nodes) are
    filled where there is a mass. Node by node, so that what all levels gain stays in the cache.
    """
    n_levels, finest = np.uint64(pyramid.shape[0]), np.uint64(pyramid[0])
    components, width = np.uint64(projections.shape[1]), np.uint64(projections.shape[2])
    gains, offsets, deepest = room.gains, room.offsets, 0
    for i in range(n_levels):
        deepest = max(deepest, levels[i])
    for node in range(np.uint64(masses.shape[1])):
        first_part = _NONE
        for i in range(n_levels):
            regions, nodes = np.uint64(pyramid[i] * pyramid[i]), np.uint64(1 << levels[i])
            below = np.uint64(deepest - levels[i])
            end = first_part + regions * nodes
            ancestor = node >> below
            if ancestor << below == node:  # the first one below it
                own = np.uint64(first_nodes[i]) + ancestor
                by_part = weights[first_part * components : end * components]
                _weigh_node(
                    by_part.reshape((regions, nodes, components))[:, ancestor],
                    part_scales[first_part:end].reshape((regions, nodes))[:, ancestor],
                    projections,
                    own,
                    scales[own],
                    means[own],
                    room.given,
                    gains[i],
                    offsets[i],
                )
            first_part = end
        for region in range(finest * finest):
            if masses[region, node] > 0:
                mass_weights[region, node] = 0
                total_weights[region, node] = 0
                for i in range(n_levels):
                    per_side = np.uint64(pyramid[i])
                    side = finest // per_side
                    around = region // finest // side * per_side + region % finest // side
                    mass_weights[region, node] += offsets[i, around]
                    for k in range(width):
                        total_weights[region, node, k] += gains[i, around, k]


@kernel
def share_residuals(
    runs: Runs,
    directions: Directions,
    scratch: Scratch,
    leaf_ids: Int32Array,
    regions: Int32Array,
    levels_below: int,
    weights: Float32Array,
    offsets: Float32Array,
    steps: Float32Array,
    norms: Float32Array,
    shares: Float32Array,
) -> None:
    """What each descriptor adds to a sum that is linear in the totals and masses.

    A total of region and node has the weights (regions, nodes, w), a mass the offset
    (regions, nodes). The descriptors are those of `quantise_block`, with room for the directions
    and scratch of one block; leaf_ids, regions, steps, norms and shares (n,). Their values are
    rounded as in a total, so that the shares add up.
    """
    n, below = np.uint64(runs.starts.shape[0]), np.uint64(levels_below)
    width = np.uint64(weights.shape[2])
    for start in range(_NONE, n, BLOCK):
        end = min(start + BLOCK, n)
        quantise_block(runs, start, end, _NONE, directions, steps, norms, scratch)
        for i in range(start, end):
            mass, own_step = in_sums(steps[i], norms[i])
            region, node = np.uint64(regions[i]), np.uint64(leaf_ids[i]) >> below
            share = np.float32(0)
            if mass == 0:  # perhaps nothing has a weight there
                shares[i] = 0
                continue
            for k in range(width):
                value = in_total(directions[i - start, k], own_step)
                share += weights[region, node, k] * np.float32(value)
            shares[i] = _UNIT * share - np.float32(mass) / _MASS * offsets[region, node]
