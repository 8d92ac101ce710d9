"""Maximum of the codes over regions, by looping over the nonzeros only.

An atom that a descriptor does not use has the value zero there, so every maximum
starts from zero.
"""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array
from service.engine.compiling import kernel

__all__ = ["ABSOLUTE", "RAW", "SPLIT", "pool_regions"]

ABSOLUTE, RAW, SPLIT = 0, 1, 2


@kernel
def pool_regions(
    atom_ids: Int32Array,
    values: Float32Array,
    sign_rule: int,
    n_atoms: int,
    first: int,
    last: int,
    pooled: Float32Array,
) -> None:
    """Raise `pooled` to the largest value of each atom in regions `first` to `last`.

    atom_ids, values (rows, cols, m); pooled (regions, regions, channels), zero at
    first. With SPLIT, atom k fills channel k where positive and K + k where negative.
    """
    rows, cols, nonzeros = atom_ids.shape
    regions = pooled.shape[0]
    # No branches: signs are as good as random, and one value in four is a new maximum.
    # A negative value that keeps its sign cannot exceed a maximum.
    shift = np.uint64(n_atoms if sign_rule == SPLIT else 0)
    flip = np.float32(1 if sign_rule == RAW else -1)
    for region in range(first, last):
        # Descriptor y lies in region ⌊y·regions/rows⌋. One region at a time stays in the cache.
        region_y, region_x = region // regions, region % regions
        channels = pooled[region_y, region_x]
        top, bottom = -(-region_y * rows // regions), -(-(region_y + 1) * rows // regions)
        left, right = -(-region_x * cols // regions), -(-(region_x + 1) * cols // regions)
        for y in range(np.uint64(top), np.uint64(bottom)):
            for x in range(np.uint64(left), np.uint64(right)):
                for a in range(np.uint64(nonzeros)):
                    value = values[y, x, a]
                    negative = value < 0
                    channel = np.uint64(atom_ids[y, x, a]) + (shift if negative else np.uint64(0))
                    size = value * (flip if negative else np.float32(1))
                    channels[channel] = max(channels[channel], size)
