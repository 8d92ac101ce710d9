"""Maximum of the codes over regions, by looping over the nonzeros only.

An atom that a descriptor does not use has the value zero there, so every maximum
starts from zero.
"""

from service.engine.arrays import Float32Array, Int32Array
from service.engine.compiling import kernel

__all__ = ["ABSOLUTE", "RAW", "SPLIT", "pool_regions"]

ABSOLUTE, RAW, SPLIT = 0, 1, 2


@kernel
def pool_regions(
    atom_ids: Int32Array, values: Float32Array, sign_rule: int, n_atoms: int, pooled: Float32Array
) -> None:
    """Raise `pooled` to the largest value of each atom in each region of the grid.

    atom_ids, values (rows, cols, m); pooled (regions, regions, channels), zero at
    first. With SPLIT, atom k fills channel k where positive and K + k where negative.
    """
    rows, cols, nonzeros = atom_ids.shape
    regions = pooled.shape[0]
    for y in range(rows):
        region_y = y * regions // rows
        for x in range(cols):
            region_x = x * regions // cols
            for a in range(nonzeros):
                channel = atom_ids[y, x, a]
                value = values[y, x, a]
                if value < 0:
                    if sign_rule == RAW:
                        continue
                    value = -value
                    if sign_rule == SPLIT:
                        channel += n_atoms
                if value > pooled[region_y, region_x, channel]:
                    pooled[region_y, region_x, channel] = value
