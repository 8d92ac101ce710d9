"""Descriptor, tree, coder, sums and maxima together: serving does all in one pass.

The kernel is made of the same parts as `sift.locate`, `Tree.route`, `Coder.encode` and `pool`, and
gives the same numbers. Training calls those, because it needs the leaves before there is a coder.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from service.engine import strips as strips_of
from service.engine.arrays import Float32Array, Int32Array, Int64Array, IntpArray, frozen
from service.engine.codes import Codes
from service.engine.coding import Coder, no_coder
from service.engine.fixedpoint import Descriptors, block_scratch, lengths_of, room_for_block
from service.engine.kernels.encoding import (
    Grid,
    Source,
    Sums,
    TreeTables,
    Written,
    encode_strips,
)
from service.engine.kernels.fixedpoint import CELL
from service.engine.kernels.integers import LANES
from service.engine.kernels.strips import NOT_DECODING, Strips
from service.engine.thread_memory import kept_by_thread
from service.engine.tree import Tree

__all__ = [
    "Encoded",
    "Found",
    "Outputs",
    "ResidualSums",
    "Routed",
    "TreeCoder",
    "coded_grid",
    "encode_by_tree",
    "given",
    "take_strips",
]


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
    """All descriptors on a grid of (rows, cols), row by row, and their leaves (n,)."""

    grid: tuple[int, int]
    descriptors: Descriptors
    leaf_ids: Int32Array


class Encoded(NamedTuple):
    """What one view of an image is pooled from.

    The codes of its descriptors on a grid of (rows, cols), their largest values in the finest
    regions, and sums of their residuals. Where the largest values are known, codes and descriptors
    are kept only if somebody asks for them.
    """

    kept_codes: Codes | None
    grid: tuple[int, int]
    finest: Float32Array | None = None
    sums: ResidualSums | None = None
    routed: Routed | None = None

    @property
    def codes(self) -> Codes:
        """The codes, which have been kept."""
        assert self.kept_codes is not None  # noqa: S101  # whoever reads them asked for them
        return self.kept_codes


class Outputs(NamedTuple):
    """What coding fills for a grid of n descriptors, of which c are coded.

    leaf_ids, steps, norms (n,); atom_ids, values (c, m). What is not `kept` has room for one band
    of the grid at a time.
    """

    grid: Grid
    kept: bool
    leaf_ids: Int32Array
    steps: Float32Array
    norms: Float32Array
    atom_ids: Int32Array
    values: Float32Array

    @classmethod
    def empty(cls, grid: Grid, nonzeros: int) -> "Outputs":
        """Room for the descriptors of a grid."""
        coded_rows, coded_cols = coded_grid(grid)
        return cls(grid, True, *_room(grid.rows * grid.cols, coded_rows * coded_cols, nonzeros))  # noqa: FBT003

    @classmethod
    def of_bands(cls, grid: Grid, nonzeros: int, band: int) -> "Outputs":
        """Room for so many rows of a grid at a time.

        It is the calling thread's, and may be written by its next call of a kernel.
        """
        count = band * grid.cols
        return cls(grid, False, *_own_room(count + -count % _ROOM, nonzeros))  # noqa: FBT003

    @classmethod
    def of_list(cls, count: int, nonzeros: int) -> "Outputs":
        """Room for so many descriptors that are all coded."""
        return cls.empty(Grid(count, 1, 1), nonzeros)

    @property
    def codes(self) -> Codes:
        """The codes of the descriptors that are coded."""
        leaf_ids, (rows, cols, stride) = self.leaf_ids, self.grid
        if stride > 1:
            leaf_ids = leaf_ids.reshape(rows, cols)[::stride, ::stride].reshape(-1)
        return Codes(leaf_ids, self.atom_ids, self.values)

    @property
    def lengths(self) -> Float32Array:
        """Lengths (n,) of the descriptors, see `lengths_of`."""
        return lengths_of(self.steps, self.norms)

    def put(self, places: IntpArray, others: "Outputs") -> None:
        """Replace what there is at some places of a list."""
        for own, other in zip(self[2:], others[2:], strict=True):
            own[places] = other


_Arrays = tuple[Int32Array, Float32Array, Float32Array, Int32Array, Float32Array]


def _room(count: int, coded: int, nonzeros: int) -> _Arrays:
    return (
        np.empty(count, np.int32),
        np.empty(count, np.float32),
        np.empty(count, np.float32),
        np.empty((coded, nonzeros), np.int32),
        np.empty((coded, nonzeros), np.float32),
    )


@kept_by_thread
def _own_room(count: int, nonzeros: int) -> _Arrays:
    return _room(count, count, nonzeros)


# Room for bands is a multiple of so many descriptors, so that images of most sizes share it.
_ROOM = 2048


def coded_grid(grid: Grid) -> tuple[int, int]:
    """Rows and columns of the descriptors that are coded."""
    return -(-grid.rows // grid.every), -(-grid.cols // grid.every)


class Found(NamedTuple):
    """What one thread adds up, and finds the largest of, over the strips that it takes.

    Sums of residuals, the largest values (regions, regions, channels) of codes by a sign rule of
    `kernels/pooling.py`, and nanoseconds of describing, coding and pooling.
    """

    sums: ResidualSums
    finest: Float32Array
    sign_rule: int
    laps: Int64Array

    @classmethod
    def nothing(
        cls,
        sums: ResidualSums | None = None,
        finest: Float32Array | None = None,
        sign_rule: int = 0,
    ) -> "Found":
        """Nothing yet; what is left out will not be found."""
        return cls(
            _NO_SUMS if sums is None else sums,
            _NO_MAXIMA if finest is None else finest,
            sign_rule,
            np.zeros(3, np.int64),
        )


_NO_SUMS = ResidualSums.zeros(np.zeros(0, np.int32), 0, 1)
_NO_MAXIMA = np.zeros((0, 0, 0), np.float32)
_NO_CODERS = {wide: no_coder(wide=wide) for wide in (False, True)}
_NO_IMAGE = frozen(np.zeros((0, 0), np.float32))
_NO_TAPS = frozen(np.zeros(0, np.float32))
_NO_MAP = np.zeros((0, 2, 0, CELL), np.float32)
_NO_PEAKS = np.zeros((0, 2, 0), np.uint32)


def given(descriptors: Descriptors) -> Source:
    """Descriptors that are computed already."""
    return Source(
        gray=_NO_IMAGE,
        decoding=NOT_DECODING,
        smooth=_NO_TAPS,
        derive=_NO_TAPS,
        bands=_NO_IMAGE,
        step=0,
        side=0,
        features=_NO_MAP,
        peaks=_NO_PEAKS,
        runs=descriptors.runs,
    )


class TreeCoder(NamedTuple):
    """A tree, and the coder of its leaves; without one, codes have no nonzeros.

    A coder is wide if the tree is.
    """

    tree: Tree
    coder: Coder | None


def encode_by_tree(
    descriptors: Descriptors,
    by: TreeCoder,
    outputs: Outputs,
    sums: ResidualSums | None = None,
    strips: Strips | None = None,
) -> None:
    """Fill the outputs of descriptors that are all coded, and add to the sums.

    All are filled when this returns; with `strips`, other threads may take some of them.
    """
    strips = strips or strips_of.cut(len(descriptors), 1, 1)
    take_strips(strips, given(descriptors), by, outputs, Found.nothing(sums), waits=True)


def take_strips(  # noqa: PLR0913  # each is a group of arguments of one kernel
    strips: Strips,
    source: Source,
    by: TreeCoder,
    outputs: Outputs,
    found: Found,
    *,
    waits: bool,
) -> None:
    """Take strips of descriptors until there is none; fill their outputs, add to what is found.

    Whoever `waits` returns when all strips are done, by whichever thread.
    """
    tree, coder = by.tree, by.coder or _NO_CODERS[by.tree.wide]
    sums = found.sums
    has_memory = encode_strips(
        strips,
        source,
        outputs.grid,
        room_for_block(tree.directions.shape[1], wide=tree.wide),
        TreeTables(tree.directions, tree.cuts, tree.depth),
        coder.leaves,
        coder.atoms,
        Sums(
            sums.regions,
            tree.depth - sums.level,
            sums.totals.reshape(-1, LANES),
            sums.masses,
            found.finest,
            found.sign_rule,
            len(coder.atoms),
        ),
        block_scratch(outputs.atom_ids.shape[1]),
        Written(*outputs[1:]),
        found.laps,
        waits,
    )
    if not has_memory:
        raise MemoryError("there is not enough memory to describe an image")
