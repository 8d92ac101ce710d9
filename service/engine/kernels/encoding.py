"""Descriptors to codes and residuals in one pass: rounded, routed, solved and added up.

Sixteen at a time, so that their directions never leave the L1 cache. Stage by stage, with
thousands of them in between, rounding alone took 1.4 ms for a photograph on one core and on two
alike, because they went through memory that the cores share.
"""

import numpy as np

from service.engine.arrays import Float32Array, Int16Array, Int32Array, UInt64Array
from service.engine.compiling import kernel
from service.engine.kernels.coding import solve_block
from service.engine.kernels.fixedpoint import quantise_block
from service.engine.kernels.residuals import add_residuals
from service.engine.kernels.tree import BLOCK, walk_block

__all__ = ["encode_runs"]

_NONE = np.uint64(0)


@kernel
def encode_runs(
    flat: Float32Array,
    starts: UInt64Array,
    stride: int,
    longest: float,
    vectors: Int16Array,
    cuts: Int32Array,
    depth: int,
    table: Int32Array,
    inverses: Float32Array,
    atoms: Int16Array,
    atom_scales: Float32Array,
    regions: Int32Array,
    levels_below: int,
    lengths: Float32Array,
    leaf_ids: Int32Array,
    atom_ids: Int32Array,
    values: Float32Array,
    totals: Int32Array,
    masses: Int32Array,
) -> None:
    """Lengths (n,), leaf ids (n,), atom ids (n, m) and values (n, m) of all descriptors.

    The arguments are those of `quantise_runs`, `walk`, `solve_codes` and `add_residuals`.
    Without nonzeros there are no codes, and without regions in `totals` no residuals.
    """
    n, step = np.uint64(starts.shape[0]), np.uint64(stride)
    first_leaf = np.uint64(2**depth - 1)
    directions = np.empty((BLOCK, vectors.shape[1]), np.int16)
    nodes = np.empty(BLOCK, np.uint64)
    correlations = np.empty(atom_ids.shape[1], np.float32)
    has_codes, has_residuals = atom_ids.shape[1] > 0, totals.shape[0] > 0
    above = np.uint64(levels_below)
    for start in range(_NONE, n, BLOCK):
        end = min(start + BLOCK, n)
        quantise_block(flat, starts, step, longest, start, end, _NONE, directions, lengths)
        walk_block(directions, _NONE, end - start, vectors, cuts, depth, nodes)
        for i in range(start, end):
            leaf_ids[i] = nodes[i - start] - first_leaf if lengths[i] > 0 else _NONE
        if has_codes:
            solve_block(
                directions,
                _NONE,
                lengths,
                leaf_ids,
                start,
                end,
                table,
                inverses,
                atoms,
                atom_scales,
                correlations,
                atom_ids,
                values,
            )
        if has_residuals:
            add_residuals(
                directions,
                _NONE,
                lengths,
                leaf_ids,
                start,
                end,
                regions,
                above,
                totals,
                masses,
            )
