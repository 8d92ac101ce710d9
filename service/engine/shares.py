"""What each descriptor of an image adds to a score.

A score is linear in the pooled vector. An entry of codes is the value of one descriptor, the
largest of its region. An entry of residuals is a sum over descriptors that was scaled: with the
scale that it had, it is linear in them. So every entry is parted among descriptors without a
rest, and the shares of all descriptors are what a block adds to the score, to rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from service.engine import pooling
from service.engine.arrays import Float32Array, Float64Array, IntpArray, frozen
from service.engine.blocks import CodesBlock, ResidualsBlock
from service.engine.encoding import Encoded, ResidualSums
from service.engine.fixedpoint import block_scratch, room_for_block
from service.engine.kernels.pooling import give_to_largest
from service.engine.kernels.residual_shares import GainsRoom, share_residuals, weigh_sums
from service.engine.views import View

__all__ = ["CodeShares", "code_shares", "residual_shares"]


@dataclass(frozen=True)
class CodeShares:
    """Shares (n,) of single values of codes, each of one atom at one place of the coded grid.

    A value that is the largest of several regions, of a small one and of those around it, has
    one share for all of them.
    """

    grid: tuple[int, int]
    places: IntpArray
    atom_ids: IntpArray
    shares: Float32Array

    def on_grid(self) -> Float64Array:
        """The shares of each descriptor together, (rows, cols)."""
        rows, cols = self.grid
        summed = np.bincount(self.places, self.shares, rows * cols).astype(np.float64, copy=False)
        return summed.reshape(rows, cols)


def code_shares(
    block: CodesBlock, encoded: Encoded, pooled: Float32Array, weights: Float32Array
) -> CodeShares:
    """The shares of an image's codes, given its block of the pooled vector and the weights."""
    config = block.config
    levels = [(regions, regions, config.n_channels) for regions in config.pyramid]
    values, entries = (_split(array, levels) for array in (pooled, pooled * weights))
    shares = entries[0].copy()
    for level in entries[1:]:
        give_to_largest(frozen(values[0]), frozen(level), shares)
    channels = np.flatnonzero(shares)
    places = pooling.maxima(encoded.codes, encoded.grid, config).reshape(-1)[channels]
    return CodeShares(
        encoded.grid,
        places.astype(np.intp),
        channels % config.n_channels % config.n_atoms,
        shares.reshape(-1)[channels],
    )


def _split(array: Float32Array, shapes: Sequence[tuple[int, ...]]) -> list[Float32Array]:
    """The parts of an array that follow one another, in these shapes."""
    ends = list(accumulate((int(np.prod(shape)) for shape in shapes), initial=0))
    parts = zip(pairwise(ends), shapes, strict=True)
    return [array[begin:end].reshape(shape) for (begin, end), shape in parts]


def residual_shares(view: View, encoded: Encoded, weights: Float32Array) -> Float32Array:
    """The shares (rows, cols) of an image's descriptors in the block of residuals of a view."""
    block, routed, sums = view.residuals, encoded.routed, encoded.sums
    # Whoever asks for shares has kept the descriptors, and knows the view's blocks.
    assert block is not None and routed is not None and sums is not None  # noqa: PT018, S101
    totals, masses = _weights_of_sums(block, sums, weights)
    regions, shares = block.regions(routed.grid), np.empty(len(routed.leaf_ids), np.float32)
    steps, norms = np.empty_like(shares), np.empty_like(shares)
    descriptors = routed.descriptors
    share_residuals(
        descriptors.runs,
        room_for_block(descriptors.width, wide=view.config.has_signs),
        block_scratch(),
        frozen(routed.leaf_ids),
        frozen(regions),
        view.config.depth - sums.level,
        frozen(totals),
        frozen(masses),
        steps,
        norms,
        shares,
    )
    return shares.reshape(routed.grid)


def _weights_of_sums(
    block: ResidualsBlock, sums: ResidualSums, weights: Float32Array
) -> tuple[Float32Array, Float32Array]:
    """How much a score gains by each total and mass, all levels of the pyramid together.

    They have the layout of the sums, and are filled where there is a mass.
    """
    config = block.config
    scales = np.concatenate([scales.reshape(-1) for scales in sums.part_scales])
    # Each level of the pyramid has unit length, if there is anything in it; then the block has.
    levels = sum(bool(level.any()) for level in sums.part_scales)
    scales *= np.float32(config.weight / np.sqrt(max(levels, 1)))
    totals = np.empty(sums.totals.shape, np.float32)
    masses = np.empty(sums.masses.shape, np.float32)
    weigh_sums(
        np.array(config.pyramid, np.int32),
        np.array(config.levels, np.int32),
        np.array([config.nodes_of(level).start for level in config.levels], np.int32),
        frozen(weights),
        frozen(scales),
        block.transposed_projections,
        block.scales,
        block.means,
        frozen(sums.masses),
        GainsRoom.of(
            len(config.pyramid), config.pyramid[0] ** 2, block.means.shape[1], config.components
        ),
        totals,
        masses,
    )
    return totals, masses
