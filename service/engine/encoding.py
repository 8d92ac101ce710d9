"""Descriptor, tree, coder, sums and maxima together: serving does all in one pass.

The kernel is made of the same parts as `sift.locate`, `Tree.route`, `Coder.encode` and `pool`, and
gives the same numbers. Training calls those, because it needs the leaves before there is a coder.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from service.engine import sift
from service.engine import strips as strips_of
from service.engine.arrays import (
    Directions,
    FixedRows,
    Float32Array,
    Int32Array,
    IntpArray,
    frozen,
)
from service.engine.codes import Codes
from service.engine.coding import Coder, no_coder
from service.engine.fixedpoint import Descriptors, block_scratch, lengths_of, room_for_block
from service.engine.kernels.encoding import Grid, Source, TreeTables, Written, encode_strips
from service.engine.kernels.fixedpoint import CELL
from service.engine.kernels.integers import LANES, Scratch
from service.engine.kernels.layers import Sums
from service.engine.kernels.leaves import LeafTables
from service.engine.kernels.strips import NOT_DECODING, Decoding, Strips
from service.engine.thread_memory import kept_by_thread
from service.engine.tree import Tree

__all__ = [
    "Encoded",
    "Kind",
    "Outputs",
    "ResidualSums",
    "Room",
    "Routed",
    "TreeCoder",
    "Work",
    "band_room",
    "coded_grid",
    "encode_by_tree",
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
    def empty(cls, regions: Int32Array, *shape: int) -> "ResidualSums":
        """Room for the sums of (regions, nodes), or of several layers of them."""
        totals = np.empty((*shape, LANES), np.int32)
        return cls(frozen(regions), totals, np.empty(shape, np.int32))

    @classmethod
    def of(cls, found: Sums) -> "ResidualSums":
        """Those of all threads, which are in the first layer."""
        totals, masses = found.totals[0], found.masses[0]
        return cls(found.regions, totals.reshape(*masses.shape, LANES), masses)

    @property
    def as_layer(self) -> "ResidualSums":
        """The same memory as the only layer."""
        return ResidualSums(self.regions, self.totals[None], self.masses[None])

    @property
    def level(self) -> int:
        """How many decisions the nodes are below the root of the tree."""
        return int(self.masses.shape[-1]).bit_length() - 1


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
    """What is written for the descriptors of a grid, all of which is kept."""

    grid: Grid
    written: Written

    @classmethod
    def empty(cls, grid: Grid, nonzeros: int) -> "Outputs":
        """Room for the descriptors of a grid."""
        coded_rows, coded_cols = coded_grid(grid)
        coded = coded_rows * coded_cols
        return cls(grid, _written(grid.rows * grid.cols, coded, nonzeros, kept=True))

    @classmethod
    def of_list(cls, count: int, nonzeros: int) -> "Outputs":
        """Room for so many descriptors that are all coded."""
        return cls.empty(Grid(count, 1, 1), nonzeros)

    @property
    def codes(self) -> Codes:
        """The codes of the descriptors that are coded."""
        leaf_ids, (rows, cols, stride) = self.written.leaf_ids, self.grid
        if stride > 1:
            leaf_ids = leaf_ids.reshape(rows, cols)[::stride, ::stride].reshape(-1)
        return Codes(leaf_ids, self.written.atom_ids, self.written.values)

    @property
    def lengths(self) -> Float32Array:
        """Lengths (n,) of the descriptors, see `lengths_of`."""
        return lengths_of(self.written.steps, self.written.norms)

    def put(self, places: IntpArray, others: "Outputs") -> None:
        """Replace what there is at some places of a list."""
        for own, other in zip(self.written[1:], others.written[1:], strict=True):
            own[places] = other


def _written(count: int, coded: int, nonzeros: int, *, kept: bool) -> Written:
    return Written(
        kept,
        np.empty(count, np.int32),
        np.empty(count, np.float32),
        np.empty(count, np.float32),
        np.empty((coded, nonzeros), np.int32),
        np.empty((coded, nonzeros), np.float32),
    )


def coded_grid(grid: Grid) -> tuple[int, int]:
    """Rows and columns of the descriptors that are coded."""
    return -(-grid.rows // grid.every), -(-grid.cols // grid.every)


@dataclass(frozen=True)
class TreeCoder:
    """A tree, and the coder of its leaves; without one, codes have no nonzeros.

    A coder is wide if the tree is.
    """

    tree: Tree
    coder: Coder | None

    @cached_property
    def tables(self) -> tuple[TreeTables, LeafTables, FixedRows]:
        """What kernels read of a tree, of its leaves, and of atoms."""
        tree, coder = self.tree, self.coder or _NO_CODERS[self.tree.wide]
        return TreeTables(tree.directions, tree.cuts, tree.depth), coder.leaves, coder.atoms

    @cached_property
    def kind(self) -> "Kind":
        """What it needs memory for."""
        nonzeros = 0 if self.coder is None else self.coder.table.shape[1]
        return Kind(self.tree.directions.shape[1], self.tree.wide, nonzeros)

    def sums(
        self,
        sums: ResidualSums | None = None,
        finest: Float32Array | None = None,
        sign_rule: int = 0,
    ) -> Sums:
        """Layers for what threads add up, and find the largest of; what is left out is not found.

        finest (layers, regions, regions, channels) is by a sign rule of `kernels/pooling.py`.
        """
        residuals = _NO_RESIDUALS
        if sums is not None:
            totals = sums.totals.reshape(len(sums.totals), -1, LANES)
            residuals = sums.regions, self.tree.depth - sums.level, totals, sums.masses
        maxima, n_atoms = _NO_MAXIMA if finest is None else finest, len(self.tables[2])
        return Sums(*residuals, maxima, sign_rule, n_atoms)


_NO_RESIDUALS = (
    frozen(np.zeros(0, np.int32)),
    0,
    np.zeros((1, 0, LANES), np.int32),
    np.zeros((1, 0, 0), np.int32),
)
_NO_MAXIMA = np.zeros((1, 0, 0, 0), np.float32)
_NO_CODERS = {wide: no_coder(wide=wide) for wide in (False, True)}
_NO_IMAGE = frozen(np.zeros((0, 0), np.float32))
_NO_TAPS = frozen(np.zeros(0, np.float32))
_NO_MAP = np.zeros((0, 2, 0, CELL), np.float32)
_NO_PEAKS = np.zeros((0, 2, 0), np.uint32)


class Kind(NamedTuple):
    """Columns of directions, whether these are wide, and nonzeros of a code."""

    columns: int
    wide: bool
    nonzeros: int


class Room(NamedTuple):
    """Where descriptors come from, and what is written while they are coded and of their codes.

    The memory is the calling thread's, and may be written by its next call of a kernel.
    """

    source: Source
    directions: Directions
    scratch: Scratch
    written: Written

    @classmethod
    def of(cls, descriptors: Descriptors, by: TreeCoder, outputs: Outputs) -> "Room":
        """For descriptors that are computed already, and outputs that are kept."""
        return cls(_given(descriptors), *_block_room(by.kind), outputs.written)


def _given(descriptors: Descriptors) -> Source:
    return Source(
        smooth=_NO_TAPS,
        derive=_NO_TAPS,
        bands=_NO_IMAGE,
        step=0,
        side=0,
        features=_NO_MAP,
        peaks=_NO_PEAKS,
        runs=descriptors.runs,
    )


def _block_room(kind: Kind) -> tuple[Directions, Scratch]:
    return room_for_block(kind.columns, wide=kind.wide), block_scratch(kind.nonzeros)


@kept_by_thread
def band_room(width: int, step: int, rows: int, kind: Kind) -> Room:
    """For fast SIFT of images so many pixels wide, and bands of so many rows of their grid."""
    source = sift.in_bands(width, step, rows)
    count = len(source.runs.starts)
    written = _written(count, count, kind.nonzeros, kept=False)
    return Room(source, *_block_room(kind), written)


class Work(NamedTuple):
    """What threads share: strips of a grid, what codes it, and what they find.

    The grid is that of an image gray (h, w), which `decoding` may fill, or of given descriptors.
    """

    strips: Strips
    grid: Grid
    by: TreeCoder
    sums: Sums
    gray: Float32Array = _NO_IMAGE
    decoding: Decoding = NOT_DECODING


def take_strips(work: Work, room: Room, *, waits: bool) -> None:
    """Take strips of descriptors until there is none.

    Whoever `waits` returns when all strips are done, by whichever thread.
    """
    source, directions, scratch, written = room
    has_memory = encode_strips(
        work.strips,
        work.gray,
        work.decoding,
        source,
        work.grid,
        directions,
        *work.by.tables,
        work.sums,
        scratch,
        written,
        waits,
    )
    if not has_memory:
        raise MemoryError("there is not enough memory to describe an image")


def encode_by_tree(
    descriptors: Descriptors,
    by: TreeCoder,
    outputs: Outputs,
    sums: ResidualSums | None = None,
    strips: Strips | None = None,
) -> None:
    """Fill the outputs of descriptors that are all coded, and the sums.

    All are filled when this returns. With `strips`, other threads may take some of them, and there
    are no sums.
    """
    strips = strips or strips_of.cut(len(descriptors), 1, 1)
    work = Work(strips, outputs.grid, by, by.sums(None if sums is None else sums.as_layer))
    take_strips(work, Room.of(descriptors, by, outputs), waits=True)
