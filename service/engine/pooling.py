"""Spatial pyramid: the largest value of each atom in each region, then unit norm.

The finest level loops over the nonzeros; coarser levels are maxima of the finest
(section "Spatial pyramidal pooling"). Levels follow one another in the pooled
vector, finest first; inside a level, regions row by row, then channels.
"""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, frozen
from service.engine.codes import Codes
from service.engine.config import CodesConfig, SignRule
from service.engine.kernels.pooling import ABSOLUTE, RAW, SPLIT, find_maxima, pool_regions
from service.engine.threads import ONE_THREAD, Threads

__all__ = ["maxima", "pool", "unit"]

_SIGN_RULES: dict[SignRule, int] = {"absolute": ABSOLUTE, "raw": RAW, "split": SPLIT}


def pool(
    codes: Codes, grid: tuple[int, int], config: CodesConfig, threads: Threads = ONE_THREAD
) -> Float32Array:
    """The block of codes (n_features,) on a grid of (rows, cols), of unit length or zero."""
    finest_regions = config.pyramid[0]
    finest = np.zeros((finest_regions, finest_regions, config.n_channels), np.float32)
    atom_ids, values = _on_grid(codes, grid)
    rule = _SIGN_RULES[config.sign_rule]

    def fill(first: int, last: int) -> None:
        pool_regions(atom_ids, values, rule, config.n_atoms, first, last, finest)

    threads.split(fill, finest_regions**2)
    levels = [_coarsen(finest, regions).ravel() for regions in config.pyramid]
    return unit(np.concatenate(levels))


def maxima(codes: Codes, grid: tuple[int, int], config: CodesConfig) -> Int32Array:
    """Which descriptor the pooled values of the finest level belong to.

    The first one, row by row, among equals: places (regions, regions, n_channels) on the grid,
    -1 where the value is zero.
    """
    regions = config.pyramid[0]
    places = np.full((regions, regions, config.n_channels), -1, np.int32)
    atom_ids, values = _on_grid(codes, grid)
    find_maxima(atom_ids, values, _SIGN_RULES[config.sign_rule], config.n_atoms, places)
    return places


def _on_grid(codes: Codes, grid: tuple[int, int]) -> tuple[Int32Array, Float32Array]:
    """Atom ids and values (rows, cols, nonzeros), read-only."""
    shape = (*grid, codes.values.shape[1])
    return frozen(codes.atom_ids.reshape(shape)), frozen(codes.values.reshape(shape))


def _coarsen(finest: Float32Array, regions: int) -> Float32Array:
    step = finest.shape[0] // regions
    blocks = finest.reshape(regions, step, regions, step, -1)
    coarse: Float32Array = blocks.max(axis=(1, 3))
    return coarse


def unit(vector: Float32Array) -> Float32Array:
    """The vector at unit length; one of zeros stays."""
    norm = np.float32(np.sqrt(np.dot(vector, vector)))
    return vector / norm if norm > 0 else vector
