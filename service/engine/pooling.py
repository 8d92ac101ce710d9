"""Spatial pyramid: the largest value of each atom in each region, then unit norm.

The finest level loops over the nonzeros; coarser levels are maxima of the finest
(section "Spatial pyramidal pooling"). Levels follow one another in the pooled
vector, finest first; inside a level, regions row by row, then channels.
"""

from functools import cache

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, Int64Array, frozen
from service.engine.codes import Codes
from service.engine.config import CodesConfig, SignRule
from service.engine.kernels.pooling import (
    ABSOLUTE,
    RAW,
    SPLIT,
    fill_pyramid,
    find_maxima,
    pool_rows,
)

__all__ = ["finest_level", "maxima", "pool", "pyramid", "room_for_maxima", "sign_rule", "to_unit"]

_SIGN_RULES: dict[SignRule, int] = {"absolute": ABSOLUTE, "raw": RAW, "split": SPLIT}


def pool(
    codes: Codes, grid: tuple[int, int], config: CodesConfig, out: Float32Array | None = None
) -> Float32Array:
    """The block of codes (n_features,) on a grid of (rows, cols), of unit length or zero.

    It is filled into `out`, if that is given.
    """
    return pyramid(finest_level(codes, grid, config), config, out)


def finest_level(codes: Codes, grid: tuple[int, int], config: CodesConfig) -> Float32Array:
    """Largest values (regions, regions, n_channels) of codes in the finest regions of a grid."""
    rows, cols = grid
    finest: Float32Array = room_for_maxima(config, 1)[0]
    finest[:] = 0
    if rows * cols:
        atom_ids, values = frozen(codes.atom_ids), frozen(codes.values)
        pool_rows(atom_ids, values, cols, rows, sign_rule(config), config.n_atoms, finest)
    return finest


def room_for_maxima(config: CodesConfig, layers: int) -> Float32Array:
    """Room for the finest level, (layers, regions, regions, n_channels)."""
    return np.empty((layers, config.pyramid[0], config.pyramid[0], config.n_channels), np.float32)


def sign_rule(config: CodesConfig) -> int:
    """What kernels call the sign rule."""
    return _SIGN_RULES[config.sign_rule]


def pyramid(
    finest: Float32Array, config: CodesConfig, out: Float32Array | None = None
) -> Float32Array:
    """The same block, whose finest level is known."""
    pooled = np.empty(config.n_features, np.float32) if out is None else out
    fill_pyramid(frozen(finest), _sides(config.pyramid), pooled)
    return pooled


def maxima(codes: Codes, grid: tuple[int, int], config: CodesConfig) -> Int32Array:
    """Which descriptor the pooled values of the finest level belong to.

    The first one, row by row, among equals: places (regions, regions, n_channels) on the grid,
    -1 where the value is zero.
    """
    regions = config.pyramid[0]
    places = np.full((regions, regions, config.n_channels), -1, np.int32)
    atom_ids, values = _on_grid(codes, grid)
    find_maxima(atom_ids, values, sign_rule(config), config.n_atoms, places)
    return places


def _on_grid(codes: Codes, grid: tuple[int, int]) -> tuple[Int32Array, Float32Array]:
    """Atom ids and values (rows, cols, nonzeros), read-only."""
    shape = (*grid, codes.values.shape[1])
    return frozen(codes.atom_ids.reshape(shape)), frozen(codes.values.reshape(shape))


@cache
def _sides(pyramid: tuple[int, ...]) -> Int64Array:
    return frozen(np.array(pyramid, np.int64))


def to_unit(vector: Float32Array) -> Float32Array:
    """The vector, scaled to unit length in place; one of zeros stays."""
    norm = np.float32(np.sqrt(np.dot(vector, vector)))
    return np.divide(vector, norm, out=vector) if norm > 0 else vector
