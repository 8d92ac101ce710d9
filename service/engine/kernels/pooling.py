"""Maximum of the codes over regions, by looping over the nonzeros only.

An atom that a descriptor does not use has the value zero there, so every maximum
starts from zero.
"""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, Int64Array
from service.engine.compiling import allocating_kernel, kernel, part

__all__ = [
    "ABSOLUTE",
    "RAW",
    "SPLIT",
    "fill_pyramid",
    "find_maxima",
    "give_to_largest",
    "pool_rows",
    "raise_maxima",
]

ABSOLUTE, RAW, SPLIT = 0, 1, 2

_FIVE = np.uint64(5)


@part
def _raise_usual(
    atom_ids: Int32Array, values: Float32Array, begin: int, end: int, channels: Float32Array
) -> None:
    """Raise the maxima of a region to five sizes each of some codes, the paper's number.

    Without a loop over them, in three quarters of the time.
    """
    for i in range(np.uint64(begin), np.uint64(end)):
        for a in range(_FIVE):
            channel, size = np.uint64(atom_ids[i, a]), abs(values[i, a])
            largest = channels[channel]
            channels[channel] = size if size > largest else largest


@part
def raise_maxima(
    atom_ids: Int32Array,
    values: Float32Array,
    cols: int,
    begin: int,
    end: int,
    rows: int,
    sign_rule: int,
    n_atoms: int,
    pooled: Float32Array,
) -> None:
    """Raise `pooled` to the largest value of each atom in each region, over some rows of a grid.

    atom_ids, values (≥ (end - begin)·cols, m) are of rows `begin` to `end`; pooled (regions,
    regions, channels), zero at first. With SPLIT, atom k fills channel k where positive and K + k
    where negative.
    """
    nonzeros, regions = np.uint64(atom_ids.shape[1]), pooled.shape[0]
    # No branches: signs are as good as random, and one value in four is a new maximum. A choice
    # between two values by the sign becomes one: 0.61 ms for a photograph where this takes 0.15.
    shift = np.uint64(n_atoms if sign_rule == SPLIT else 0)
    keeps_sign = sign_rule == RAW
    is_usual = sign_rule == ABSOLUTE and nonzeros == _FIVE
    for region_x in range(regions):
        # Descriptor x lies in region ⌊x·regions/cols⌋. One region at a time stays in the cache.
        left, right = -(-region_x * cols // regions), -(-(region_x + 1) * cols // regions)
        for y in range(begin, end):
            channels = pooled[y * regions // rows, region_x]
            first = (y - begin) * cols
            if is_usual:
                _raise_usual(atom_ids, values, first + left, first + right, channels)
                continue
            for i in range(np.uint64(first + left), np.uint64(first + right)):
                for a in range(nonzeros):
                    value = values[i, a]
                    # A negative value that keeps its sign cannot exceed a maximum.
                    size = value if keeps_sign else abs(value)
                    channel = np.uint64(atom_ids[i, a]) + shift * np.uint64(value < 0)
                    largest = channels[channel]
                    channels[channel] = size if size > largest else largest


@kernel
def pool_rows(
    atom_ids: Int32Array,
    values: Float32Array,
    cols: int,
    rows: int,
    sign_rule: int,
    n_atoms: int,
    pooled: Float32Array,
) -> None:
    """The same over all rows of a grid."""
    raise_maxima(atom_ids, values, cols, 0, rows, rows, sign_rule, n_atoms, pooled)


@kernel
def fill_pyramid(finest: Float32Array, sides: Int64Array, pooled: Float32Array) -> None:
    """The levels of a pyramid one after the other, scaled to unit length together, if not zero.

    finest (r, r, channels); sides (levels,) divide r. pooled (Σ sides²·channels,) out: regions of
    a level row by row, each with its channels.
    """
    regions, _, channels = finest.shape
    squared, place = np.float32(0), 0
    for side in sides:
        step = regions // side
        for region in range(side * side):
            own = pooled[place : place + channels]
            top, left = region // side * step, region % side * step
            for channel in range(channels):
                own[channel] = finest[top, left, channel]
            for i in range(1, step * step):
                values = finest[top + i // step, left + i % step]
                for channel in range(channels):
                    value = values[channel]
                    own[channel] = value if value > own[channel] else own[channel]
            for channel in range(channels):
                squared += own[channel] * own[channel]
            place += channels
    if squared > 0:
        scale = np.float32(1) / np.sqrt(squared)
        for i in range(place):
            pooled[i] *= scale


@allocating_kernel
def find_maxima(
    atom_ids: Int32Array, values: Float32Array, sign_rule: int, n_atoms: int, places: Int32Array
) -> None:
    """Which descriptor has the largest value of each atom in each region.

    atom_ids, values (rows, cols, m). places (regions, regions, channels) are numbers of
    descriptors, row by row, of which the first has the maximum that `pool_rows` finds; they
    stay what they are where that is zero.
    """
    rows, cols, nonzeros = atom_ids.shape
    regions = places.shape[0]
    largest = np.zeros(places.shape, np.float32)
    shift = n_atoms if sign_rule == SPLIT else 0
    flip = np.float32(1 if sign_rule == RAW else -1)
    for y in range(rows):
        for x in range(cols):
            region_y, region_x = y * regions // rows, x * regions // cols
            for a in range(nonzeros):
                value = values[y, x, a]
                channel = atom_ids[y, x, a] + (shift if value < 0 else 0)
                size = value * (flip if value < 0 else np.float32(1))
                if size > largest[region_y, region_x, channel]:
                    largest[region_y, region_x, channel] = size
                    places[region_y, region_x, channel] = y * cols + x


@allocating_kernel
def give_to_largest(finest: Float32Array, entries: Float32Array, shares: Float32Array) -> None:
    """Add the entries of a coarser level to those finest regions that have its maxima.

    finest and shares (r, r, channels); entries (regions, regions, channels). Among equals the
    first region has it, row by row.
    """
    regions, _, channels = entries.shape
    side = finest.shape[0] // regions
    largest, place = np.empty(channels, np.float32), np.empty(channels, np.int64)
    for down in range(regions):
        for across in range(regions):
            largest[:] = 0
            place[:] = 0
            for i in range(side * side):
                values = finest[down * side + i // side, across * side + i % side]
                for channel in range(channels):
                    if values[channel] > largest[channel]:
                        largest[channel] = values[channel]
                        place[channel] = i
            for channel in range(channels):
                y, x = place[channel] // side, place[channel] % side
                shares[down * side + y, across * side + x, channel] += entries[
                    down, across, channel
                ]
