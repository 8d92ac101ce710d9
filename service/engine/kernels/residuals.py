"""Sums of descriptors per region and node of the tree, for blocks of residuals.

A residual is a descriptor's difference from the mean of its node. The mean is subtracted from
the sum, once for a node, so that here a descriptor is only added. Sums are integers: the same
for any number of threads, whoever adds first.
"""

import numpy as np

from service.engine.arrays import CACHE_LINE, Float32Array, Int8Array, Int16Array, Int32Array
from service.engine.compiling import kernel, part
from service.engine.kernels.integers import Index, prefetch

__all__ = ["MASS_UNIT", "TOTAL_UNIT", "add_residuals", "pool_residuals"]

# What a length of one is in a mass, and a value of one in a total. A total holds 2²⁰
# descriptors of the same direction.
MASS_UNIT = 2**8
TOTAL_UNIT = 2**11

_MASS = np.float32(MASS_UNIT)
_UNIT = np.float32(1 / TOTAL_UNIT)
_SHIFT = np.int32(12)  # 2¹⁵ of a direction times 2⁸ of a mass, to 2¹¹
_HALF = np.int32(2**11)

_NONE, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)
_THREE, _FOUR = np.uint64(3), np.uint64(4)
_LINE = np.uint64(CACHE_LINE)


@part
def add_residuals(
    directions: Int16Array,
    first_row: Index,
    lengths: Float32Array,
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
    `levels_below` levels above it. regions, lengths, leaf_ids (n,); totals (regions·nodes, w);
    masses (regions, nodes).
    """
    width = np.uint64(directions.shape[1])
    nodes, row_bytes = np.uint64(masses.shape[1]), np.uint64(4) * width
    for i in range(start, end):
        # Totals are larger than the cache that the tree leaves free.
        place = np.uint64(regions[i]) * nodes + (np.uint64(leaf_ids[i]) >> levels_below)
        for offset in range(_NONE, row_bytes, _LINE):
            prefetch(totals, place, offset)
    for i in range(start, end):
        mass = np.int32(np.rint(lengths[i] * _MASS))
        region, node = np.uint64(regions[i]), np.uint64(leaf_ids[i]) >> levels_below
        place, row = region * nodes + node, first_row + i - start
        masses[region, node] += mass
        for k in range(width):
            # numba computes in 64 bits, which is slow; what is cut off at once is not.
            product = np.int32(np.int32(directions[row, k]) * mass)
            value = np.int32(np.int32(product + _HALF) >> _SHIFT)
            totals[place, k] = np.int32(totals[place, k] + value)


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
def _project(residual: Float32Array, projection: Float32Array, part: Float32Array) -> np.float32:
    """The product residual (d,)·projection (d, c) into `part` (c,); its squared length is returned.

    Four rows at a time, because the part is read and written for each; d is a multiple of four.
    """
    width, components = np.uint64(residual.shape[0]), np.uint64(part.shape[0])
    part[:] = 0
    for k in range(_NONE, width, _FOUR):
        k1, k2, k3 = k + _ONE, k + _TWO, k + _THREE
        p, q, r, s = residual[k], residual[k1], residual[k2], residual[k3]
        for c in range(components):
            part[c] += (p * projection[k, c] + q * projection[k1, c]) + (
                r * projection[k2, c] + s * projection[k3, c]
            )
    squared = np.float32(0)
    for c in range(components):
        squared += part[c] * part[c]
    return squared


@kernel
def pool_residuals(
    totals: Int32Array,
    masses: Int32Array,
    means: Float32Array,
    projections: Int8Array,
    scales: Float32Array,
    regions: int,
    pooled: Float32Array,
) -> None:
    """Residuals of one level of the pyramid: projected, each part at unit length, then all.

    totals (r², deepest nodes, d) and masses (r², deepest nodes) are in fixed point; the nodes
    below one of a higher level follow one another. means (nodes, d); projections (nodes, d, c)
    times scales (nodes, c); pooled (regions², nodes, c) out. Node by node, so that a projection
    stays in the cache for all regions.
    """
    per_side, finest = np.uint64(regions), np.uint64(np.sqrt(totals.shape[0]))
    nodes, width = np.uint64(means.shape[0]), np.uint64(means.shape[1])
    components = np.uint64(scales.shape[1])
    side, children = finest // per_side, np.uint64(totals.shape[1]) // nodes
    sums = np.empty(width, np.int32)
    residual = np.empty(width, np.float32)
    projection = np.empty((width, components), np.float32)
    parts = 0
    for node in range(nodes):
        for k in range(width):
            for c in range(components):
                projection[k, c] = np.float32(projections[node, k, c]) * scales[node, c]
        for region in range(per_side * per_side):
            corner = region // per_side * side * finest + region % per_side * side
            part = pooled[region, node]
            sums[:] = 0
            mass = _add_descendants(
                totals, masses, corner, side, finest, node * children, children, sums
            )
            share = np.float32(mass) / _MASS
            for k in range(width):
                residual[k] = _UNIT * np.float32(sums[k]) - share * means[node, k]
            if mass == 0:
                part[:] = 0
                continue
            squared = _project(residual, projection, part)
            if squared > 0:
                parts += 1
                scale = np.float32(1) / np.sqrt(squared)
                for c in range(components):
                    part[c] *= scale
    if parts > 0:
        pooled *= np.float32(1 / np.sqrt(parts))
