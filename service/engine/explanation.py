"""Why an image got its score for a label: a map of the image that adds up to the score.

The shares of all descriptors (`shares.py`) are laid over the image, each evenly over its patch,
and added up in cells of a fixed number. The cells and the label's bias are the score, to
rounding. A difference of two labels is explained in the same way, because it is linear, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from service.engine import description
from service.engine.arrays import Float32Array, Float64Array, frozen
from service.engine.blocks import Block, CodesBlock
from service.engine.codes import Codes
from service.engine.config import EXPLANATION_CELLS, Descriptor
from service.engine.description import Patches
from service.engine.encoding import Encoded
from service.engine.shares import CodeShares, code_shares, residual_shares
from service.engine.views import View

__all__ = [
    "AtomShare",
    "BlockMap",
    "BlockShare",
    "DescribedImage",
    "Explanation",
    "map_block",
]

_MOST_ATOMS = 20


@dataclass(frozen=True)
class AtomShare:
    """What one atom adds at one patch, whose corner is given in pixels of the working size."""

    atom_id: int
    left: int
    top: int
    side: int
    value: float
    contribution: float


@dataclass(frozen=True)
class BlockShare:
    """What one block of the pooled vector adds."""

    kind: str
    descriptor: Descriptor
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """A label's score, or how much it exceeds that of the label `against`, and where it is from.

    cells (32, 32) divide the image evenly, row by row; they and `bias` add up to `score`, and so
    do `blocks` and `bias`. `atoms` are the strongest of the first block of codes, whatever their
    sign. `width` and `height` are those of the image at working size.
    """

    label: str
    against: str | None
    score: float
    bias: float
    cells: Float64Array
    width: int
    height: int
    blocks: tuple[BlockShare, ...]
    atoms: tuple[AtomShare, ...]


@dataclass(frozen=True)
class DescribedImage:
    """What is left of an image after its views were pooled, their descriptors kept."""

    height: int
    width: int
    views: Sequence[View]
    encoded: Sequence[Encoded]

    def patches(self, number: int, stride: int = 1) -> Patches:
        """Where a view's descriptors are, or those of every so many rows and columns."""
        places = description.patches(self.height, self.width, self.views[number].config)
        return places._replace(step=places.step * stride)

    def lay_out(self, shares: Float32Array | Float64Array, patches: Patches) -> Float64Array:
        """Shares (rows, cols), each evenly over its patch, in cells (32, 32)."""
        left, top, step, side = patches
        rows, cols = shares.shape
        down = _overlaps(range(top, top + step * rows, step), side, self.height)
        across = _overlaps(range(left, left + step * cols, step), side, self.width)
        cells: Float64Array = down.T @ shares @ across
        return cells


# Most images of one sender have the same few sizes.
@lru_cache(256)
def _overlaps(starts: range, side: int, length: int) -> Float64Array:
    """Which part (n, 32) of each span of `side` pixels lies in which of 32 cells of `length`."""
    edges = np.arange(EXPLANATION_CELLS + 1) * (length / EXPLANATION_CELLS)
    inside = np.clip(edges - np.array(starts)[:, np.newaxis], 0, side)
    return frozen(np.diff(inside) / side)


@dataclass(frozen=True)
class BlockMap:
    """What a block adds, cell by cell, and the strongest atoms of a block of codes."""

    share: BlockShare
    cells: Float64Array
    atoms: tuple[AtomShare, ...] = ()


def map_block(
    block: Block, image: DescribedImage, pooled: Float32Array, weights: Float32Array
) -> BlockMap:
    """The map of a block, given its part of the pooled vector and the weights of that."""
    config = block.config
    view, encoded = image.views[config.view], image.encoded[config.view]
    share = BlockShare(config.kind, view.config.descriptor, float(np.dot(pooled, weights)))
    if isinstance(block, CodesBlock):
        shares = code_shares(block, encoded, pooled, weights)
        patches = image.patches(config.view, block.config.stride)
        cells = image.lay_out(shares.on_grid(), patches)
        return BlockMap(share, cells, _strongest(shares, encoded.codes, patches))
    on_grid = residual_shares(view, encoded, weights)
    return BlockMap(share, image.lay_out(on_grid, image.patches(config.view)))


def _strongest(shares: CodeShares, codes: Codes, patches: Patches) -> tuple[AtomShare, ...]:
    strength = np.abs(shares.shares)
    strong = np.flatnonzero(strength >= _nth_largest(strength, _MOST_ATOMS))
    order = strong[np.argsort(-strength[strong], kind="stable")[:_MOST_ATOMS]]
    places, atoms = shares.places[order], shares.atom_ids[order]
    columns = (codes.atom_ids[places] == atoms[:, np.newaxis]).argmax(axis=1)
    rows, cols = np.divmod(places, shares.grid[1])
    return tuple(
        AtomShare(atom, left, top, patches.side, value, contribution)
        for atom, left, top, value, contribution in zip(
            atoms.tolist(),
            (patches.left + patches.step * cols).tolist(),
            (patches.top + patches.step * rows).tolist(),
            codes.values[places, columns].tolist(),
            shares.shares[order].tolist(),
            strict=True,
        )
    )


def _nth_largest(values: Float32Array, n: int) -> float:
    """The n-th largest number; zero if there are fewer. That is faster than sorting them all."""
    return float(np.partition(values, -n)[-n]) if len(values) >= n else 0.0
