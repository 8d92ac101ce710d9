"""Sums of descriptors per region and node of the tree, for blocks of residuals.

A residual is a descriptor's difference from the mean of its node. The mean is subtracted from
the sum, once for a node, so that here a descriptor is only added. Sums are integers: the same
for any number of threads, whoever adds first.
"""

from typing import NamedTuple

import numpy as np

from service.engine.arrays import (
    CACHE_LINE,
    Directions,
    Float32Array,
    Int8Array,
    Int32Array,
)
from service.engine.compiling import kernel, part
from service.engine.kernels.integers import Index, prefetch
from service.engine.kernels.projecting import COMPONENTS, project_rows

__all__ = [
    "MASS_UNIT",
    "TOTAL_UNIT",
    "ProjectionRoom",
    "add_residuals",
    "in_sums",
    "in_total",
    "project_residuals",
    "scale_parts",
]

# What a length of one is in a mass, and a value of one in a total. A total holds 2²⁰
# descriptors of the same direction.
MASS_UNIT = 2**8
TOTAL_UNIT = 2**11

_MASS = np.float32(MASS_UNIT)
_UNIT = np.float32(1 / TOTAL_UNIT)
# A step is a whole number in a total before it is multiplied with a direction.
_STEP = np.float32(2**23)
_SHIFT = np.int32(12)  # from 2²³ to 2¹¹
_HALF = np.int32(2**11)

_NONE, _ONE, _FOUR = np.uint64(0), np.uint64(1), np.uint64(4)
_LINE, _COMPONENTS = np.uint64(CACHE_LINE), np.uint64(COMPONENTS)


class ProjectionRoom(NamedTuple):
    """Memory that `project_residuals` writes while it works.

    Sums (d,) of one region; residuals (regions, d) of one node in whole fours and the numbers of
    their regions; and four of them projected, (4, c).
    """

    sums: Int32Array
    residuals: Float32Array
    filled: Int32Array
    four: Float32Array

    @classmethod
    def of(cls, regions: int, width: int, components: int) -> "ProjectionRoom":
        """Room for so many regions and components."""
        rows = regions + -regions % 4
        return cls(
            np.zeros(width, np.int32),
            np.zeros((rows, width), np.float32),
            np.zeros(rows, np.int32),
            np.zeros((4, components), np.float32),
        )


@part
def in_total(direction: np.uint8 | np.int16, step: np.int32) -> np.int32:
    """What a value of a descriptor adds to a total."""
    # numba computes in 64 bits, which is slow; what is cut off at once is not.
    product = np.int32(np.int32(direction) * step)
    return np.int32(np.int32(product + _HALF) >> _SHIFT)


@part
def in_sums(step: np.float32, norm: np.float32) -> tuple[np.int32, np.int32]:
    """What a descriptor adds to a mass, and its step in a total; without a mass it adds nothing."""
    mass = np.int32(np.rint(step * norm * _MASS))
    return mass, np.int32(np.rint(step * _STEP)) if mass > 0 else np.int32(0)


@part
def add_residuals(
    directions: Directions,
    first_row: Index,
    steps: Float32Array,
    norms: Float32Array,
    leaf_ids: Int32Array,
    start: Index,
    end: Index,
    regions: Int32Array,
    levels_below: Index,
    totals: Int32Array,
    masses: Int32Array,
) -> None:
    """Add descriptors `start` to `end` to the totals and masses of their regions and nodes.

    Their directions are the rows from `first_row`; a node is the leaf's ancestor
    `levels_below` levels above it. regions, steps, norms, leaf_ids (n,); totals
    (regions·nodes, w); masses (regions, nodes).
    """
    width = np.uint64(directions.shape[1])
    nodes, row_bytes = np.uint64(masses.shape[1]), np.uint64(4) * width
    for i in range(start, end):
        # Totals are larger than the cache that the tree leaves free.
        place = np.uint64(regions[i]) * nodes + (np.uint64(leaf_ids[i]) >> levels_below)
        for offset in range(_NONE, row_bytes, _LINE):
            prefetch(totals, place, offset)
    for i in range(start, end):
        region, node = np.uint64(regions[i]), np.uint64(leaf_ids[i]) >> levels_below
        place, row = region * nodes + node, first_row + i - start
        mass, step = in_sums(steps[i], norms[i])
        masses[region, node] += mass
        for k in range(width):
            totals[place, k] = np.int32(totals[place, k] + in_total(directions[row, k], step))


@part
def _add_descendants(
    totals: Int32Array,
    masses: Int32Array,
    first_region: Index,
    side: Index,
    finest: Index,
    first_child: Index,
    children: Index,
    sums: Int32Array,
) -> int:
    """Totals of some finest regions and nodes, added to `sums` (d,); their mass is returned."""
    width, mass = np.uint64(sums.shape[0]), 0
    for y in range(side):
        for x in range(side):
            region = first_region + y * finest + x
            for child in range(first_child, first_child + children):
                own = masses[region, child]
                if own > 0:
                    mass += own
                    for k in range(width):
                        sums[k] = np.int32(sums[k] + totals[region, child, k])
    return mass


@part
def _take_residuals(
    totals: Int32Array,
    masses: Int32Array,
    node: Index,
    means: Float32Array,
    per_side: Index,
    room: "ProjectionRoom",
) -> Index:
    """Residuals of a node in the regions that have any, and the numbers of these regions.

    Regions are `per_side` to a side. Residuals and numbers are filled from the front; how many
    there are is returned.
    """
    width, finest = np.uint64(means.shape[1]), np.uint64(np.sqrt(totals.shape[0]))
    side, children = finest // per_side, np.uint64(totals.shape[1]) // np.uint64(means.shape[0])
    count = _NONE
    for region in range(per_side * per_side):
        corner = region // per_side * side * finest + region % per_side * side
        room.sums[:] = 0
        mass = _add_descendants(
            totals, masses, corner, side, finest, node * children, children, room.sums
        )
        share = np.float32(mass) / _MASS
        for k in range(width):
            room.residuals[count, k] = _UNIT * np.float32(room.sums[k]) - share * means[node, k]
        room.filled[count] = region
        count += np.uint64(mass > 0)
    return count


@part
def _project_four(
    residuals: Float32Array, first: Index, projections: Int8Array, node: Index, parts: Float32Array
) -> None:
    """The products of four residuals (d,) with the node's projection (d, c) into parts (4, c)."""
    width, components = np.uint64(residuals.shape[1]), np.uint64(parts.shape[1])
    whole = components // _COMPONENTS * _COMPONENTS
    for c in range(_NONE, whole, _COMPONENTS):
        project_rows(residuals, first, projections, node, c, parts)
    for c in range(whole, components):
        for i in range(_FOUR):
            product = np.float32(0)
            for k in range(width):
                product += residuals[first + i, k] * np.float32(projections[node, k, c])
            parts[i, c] = product


@kernel
def project_residuals(
    totals: Int32Array,
    masses: Int32Array,
    means: Float32Array,
    projections: Int8Array,
    scales: Float32Array,
    regions: int,
    room: "ProjectionRoom",
    parts: Float32Array,
) -> None:
    """Residuals of each region and node, projected.

    totals (r², deepest nodes, d) and masses (r², deepest nodes) are in fixed point; the nodes
    below one of a higher level follow one another. means (nodes, d); projections (nodes, d, c)
    times scales (nodes, c); room for the regions; parts (regions², nodes, c) out. Node by node,
    so that its projection stays in the cache for all regions.
    """
    per_side = np.uint64(regions)
    nodes = np.uint64(means.shape[0])
    components = np.uint64(scales.shape[1])
    parts[:] = 0
    for node in range(nodes):
        count = _take_residuals(totals, masses, node, means, per_side, room)
        if count == _NONE:
            continue
        for first in range(_NONE, count, _FOUR):
            # Rows that no region fills are projected, too, and left alone.
            _project_four(room.residuals, first, projections, node, room.four)
            for i in range(first, min(first + _FOUR, count)):
                region = np.uint64(room.filled[i])
                for c in range(components):
                    parts[region, node, c] = room.four[i - first, c] * scales[node, c]


@kernel
def scale_parts(parts: Float32Array, scales: Float32Array) -> None:
    """Scale every part to unit length, in place, then all of them together; zeros stay.

    parts (regions², nodes, c); what each was multiplied with goes to scales (regions², nodes).
    """
    components = np.uint64(parts.shape[2])
    count = 0
    for region in range(parts.shape[0]):
        for node in range(parts.shape[1]):
            squared = np.float32(0)
            for c in range(components):
                squared += parts[region, node, c] * parts[region, node, c]
            count += 1 if squared > 0 else 0
            scales[region, node] = np.float32(1) / np.sqrt(squared) if squared > 0 else 0
    if count == 0:
        return
    scales *= np.float32(1 / np.sqrt(count))
    for region in range(parts.shape[0]):
        for node in range(parts.shape[1]):
            scale = scales[region, node]
            for c in range(components):
                parts[region, node, c] *= scale
