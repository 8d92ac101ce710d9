"""Tree, coder and sums of residuals together: serving does all three in one pass.

The kernel is made of the same parts as `Tree.route` and `Coder.encode` and gives the same
numbers. Training calls those two, because it needs the leaves before there is a coder.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, IntpArray, frozen
from service.engine.codes import Codes
from service.engine.coding import Coder, no_coder
from service.engine.fixedpoint import Descriptors, block_scratch, lengths_of, room_for_block
from service.engine.kernels.encoding import encode_runs
from service.engine.kernels.integers import LANES
from service.engine.tree import Tree

__all__ = ["Encoded", "Outputs", "ResidualSums", "Routed", "encode_by_tree", "every"]


@dataclass(frozen=True)
class ResidualSums:
    """Sums over the descriptors of each region and node, in fixed point.

    `regions` (n,) says which region a descriptor lies in. totals (regions, nodes, w) are sums of
    descriptors, masses (regions, nodes) of their lengths; the units are those of
    `kernels/residuals.py`. Pooling tells in `part_scales` what it multiplied the projected sums
    with, in their order in the pooled vector.
    """

    regions: Int32Array
    totals: Int32Array
    masses: Int32Array
    part_scales: list[Float32Array] = field(default_factory=list)

    @classmethod
    def zeros(cls, regions: Int32Array, n_regions: int, n_nodes: int) -> "ResidualSums":
        """Sums of nothing yet."""
        shape = (n_regions, n_nodes)
        return cls(frozen(regions), np.zeros((*shape, LANES), np.int32), np.zeros(shape, np.int32))

    def add(self, other: "ResidualSums") -> None:
        """Add the sums over other descriptors."""
        np.add(self.totals, other.totals, out=self.totals)
        np.add(self.masses, other.masses, out=self.masses)

    @property
    def level(self) -> int:
        """How many decisions the nodes are below the root of the tree."""
        return int(self.masses.shape[1]).bit_length() - 1


class Routed(NamedTuple):
    """All descriptors on a grid of (rows, cols), in parts of whole rows, and their leaves (n,)."""

    grid: tuple[int, int]
    descriptors: Sequence[Descriptors]
    leaf_ids: Int32Array


class Encoded(NamedTuple):
    """What one view of an image is pooled from.

    The codes of its descriptors on a grid of (rows, cols), their largest values in the finest
    regions if these are known, and sums of their residuals. The descriptors themselves are kept
    only where somebody asks which of them counted.
    """

    codes: Codes
    grid: tuple[int, int]
    finest: Float32Array | None = None
    sums: ResidualSums | None = None
    routed: Routed | None = None


class Outputs(NamedTuple):
    """What coding n descriptors fills: codes, steps and norms (n,), and sums that it adds to."""

    codes: Codes
    steps: Float32Array
    norms: Float32Array
    sums: ResidualSums | None = None

    @classmethod
    def empty(cls, count: int, nonzeros: int) -> "Outputs":
        """Room for so many descriptors."""
        codes = Codes.empty(np.empty(count, np.int32), nonzeros)
        return cls(codes, np.empty(count, np.float32), np.empty(count, np.float32))

    @property
    def lengths(self) -> Float32Array:
        """Lengths (n,) of the descriptors, see `lengths_of`."""
        return lengths_of(self.steps, self.norms)

    def put(self, places: IntpArray, others: "Outputs") -> None:
        """Replace what there is at some places, but for the sums."""
        self.codes.leaf_ids[places] = others.codes.leaf_ids
        self.codes.atom_ids[places] = others.codes.atom_ids
        self.codes.values[places] = others.codes.values
        self.steps[places], self.norms[places] = others.steps, others.norms

    def part(self, rows: slice, sums: ResidualSums | None = None) -> "Outputs":
        """A view of some rows, with sums of their own."""
        return Outputs(self.codes.part(rows), self.steps[rows], self.norms[rows], sums)


def every(stride: int, cols: int, begin: int, end: int) -> IntpArray:
    """Places of every `stride`-th descriptor, in each direction, of a grid with `cols` columns.

    Those in rows `begin` to `end`, row by row, counted from the first descriptor of row `begin`.
    """
    rows = np.arange(-(-begin // stride) * stride, end, stride) - begin
    places: IntpArray = (rows[:, None] * cols + np.arange(0, cols, stride)).reshape(-1)
    return places


_NO_SUMS = ResidualSums.zeros(np.zeros(0, np.int32), 0, 1)
_NO_CODERS = {wide: no_coder(wide=wide) for wide in (False, True)}


def encode_by_tree(
    descriptors: Descriptors, tree: Tree, coder: Coder | None, outputs: Outputs
) -> None:
    """Fill the codes, leaf ids included, the steps and norms of descriptors; add to the sums.

    Without a coder, the codes have no nonzeros. A coder is wide if the tree is.
    """
    coder = coder or _NO_CODERS[tree.wide]
    codes, sums = outputs.codes, outputs.sums or _NO_SUMS
    encode_runs(
        descriptors.flat,
        descriptors.starts,
        descriptors.stride,
        descriptors.longest,
        room_for_block(descriptors.width, wide=tree.wide),
        tree.directions,
        tree.cuts,
        tree.depth,
        coder.leaves,
        coder.atoms,
        sums.regions,
        tree.depth - sums.level,
        block_scratch(codes.atom_ids.shape[1]),
        outputs.steps,
        outputs.norms,
        codes.leaf_ids,
        codes.atom_ids,
        codes.values,
        sums.totals.reshape(-1, LANES),
        sums.masses,
    )
