"""Descriptors to codes and residuals in one pass: rounded, routed, solved and added up.

A block at a time, so that directions never leave the L1 cache. Stage by stage, with thousands
of them in between, rounding alone took 1.4 ms for a photograph on one core and on two alike,
because they went through memory that the cores share.
"""

import numpy as np

from service.engine.arrays import Directions, FixedRows, Float32Array, Int32Array, UInt64Array
from service.engine.compiling import kernel
from service.engine.kernels.coding import LeafTables, solve_block
from service.engine.kernels.fixedpoint import BLOCK, quantise_block
from service.engine.kernels.integers import Scratch
from service.engine.kernels.residuals import add_residuals
from service.engine.kernels.tree import walk_block

__all__ = ["encode_runs"]

_NONE = np.uint64(0)


@kernel
def encode_runs(
    flat: Float32Array,
    starts: UInt64Array,
    stride: int,
    longest: float,
    directions: Directions,
    vectors: FixedRows,
    cuts: Float32Array,
    depth: int,
    leaves: LeafTables,
    atoms: FixedRows,
    regions: Int32Array,
    levels_below: int,
    scratch: Scratch,
    steps: Float32Array,
    norms: Float32Array,
    leaf_ids: Int32Array,
    atom_ids: Int32Array,
    values: Float32Array,
    totals: Int32Array,
    masses: Int32Array,
) -> None:
    """Steps and norms (n,), leaf ids (n,), atom ids (n, m) and values (n, m) of all descriptors.

    The arguments are those of `quantise_runs`, `walk`, `solve_codes` and `add_residuals`, with
    room for the directions of one block. Without nonzeros there are no codes, and without
    regions in `totals` no residuals.
    """
    n, step = np.uint64(starts.shape[0]), np.uint64(stride)
    has_codes, has_residuals = atom_ids.shape[1] > 0, totals.shape[0] > 0
    above = np.uint64(levels_below)
    for start in range(_NONE, n, BLOCK):
        end = min(start + BLOCK, n)
        quantise_block(
            flat, starts, step, longest, start, end, _NONE, directions, steps, norms, scratch
        )
        walk_block(directions, _NONE, norms, start, end, vectors, cuts, depth, scratch, leaf_ids)
        if has_codes:
            solve_block(
                directions,
                _NONE,
                steps,
                leaf_ids,
                start,
                end,
                leaves,
                atoms,
                scratch,
                atom_ids,
                values,
            )
        if has_residuals:
            add_residuals(
                directions,
                _NONE,
                steps,
                norms,
                leaf_ids,
                start,
                end,
                regions,
                above,
                totals,
                masses,
            )
