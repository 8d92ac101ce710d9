"""Descriptors in fixed point: a direction of small integers, and how long a step of them is.

Routing needs only the direction of a descriptor, and a code is linear in its length, so
that both become products of integers, which are faster and the same on every machine.

Narrow directions are bytes, 127 being the descriptor's largest value. So are those of SIFT,
which have no signs, and what they are multiplied with is bytes too: half the memory to walk
through, and twice the products in an instruction. Rounding moves the values of a code by 0.6 %;
trees and dictionaries are rounded before all else is learned, so that only descriptors are.
Wide ones are 16-bit integers, rounded to 2⁻¹⁵ of the length: for values with signs, and for
anybody's vectors, of which a few large values may leave no bits to all others.

A descriptor need not be laid out to be read: fast SIFT's are four runs of 32 values in a
feature map that is fifteen times smaller than all of them side by side.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from service.engine.arrays import (
    Directions,
    FixedRows,
    Float32Array,
    Float64Array,
    IntpArray,
    UInt32Array,
    UInt64Array,
    aligned_empty,
    frozen,
)
from service.engine.errors import DescriptorError
from service.engine.kernels.fixedpoint import BLOCK, Runs, join_runs, quantise_runs
from service.engine.kernels.integers import LANES, RUN, Scratch, new_scratch
from service.engine.thread_memory import kept_by_thread

__all__ = [
    "NO_PEAKS",
    "Descriptors",
    "FixedPoint",
    "block_scratch",
    "is_wide",
    "lengths_of",
    "quantise_rows",
    "room_for_block",
    "unit_of",
]

# The largest value of a narrow row, and the length of a wide one.
_NARROW = 2**7 - 1
_WIDE = 2**15

NO_PEAKS: UInt32Array = frozen(np.zeros(0, np.uint32))
"""Those of descriptors that are not made of cells."""

# Descriptors that training rounds at a time: half a megabyte of narrow directions.
_PART = 4096


class FixedPoint(NamedTuple):
    """Directions (n, w) times steps (n,) are the descriptors; w is a multiple of 128.

    The norms (n,) are those of the directions. Columns beyond d are zero.
    """

    directions: Directions
    steps: Float32Array
    norms: Float32Array

    @property
    def lengths(self) -> Float32Array:
        """Lengths (n,) of the descriptors, see `lengths_of`."""
        return lengths_of(self.steps, self.norms)

    def part(self, count: int) -> "FixedPoint":
        """The first `count` of them."""
        return FixedPoint(self.directions[:count], self.steps[:count], self.norms[:count])


@dataclass(frozen=True)
class Descriptors:
    """n descriptors in the array that they were computed in, not copied out of it.

    Each block of 128 values is four runs of 32 in `flat`: run j of descriptor i starts at
    starts[i] + j·stride. A descriptor longer than `longest` counts as scaled down to that
    length. `peaks` are those of the cells of `flat`, if there are any, see `Runs`.
    """

    flat: Float32Array
    starts: UInt64Array
    stride: int = RUN
    longest: float = np.inf
    width: int = LANES
    peaks: UInt32Array = field(default_factory=lambda: NO_PEAKS)
    _fixed: dict[bool, FixedPoint] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, rows: "Float32Array | Descriptors") -> "Descriptors":
        """Descriptors (n, d) without a copy, unless d is no multiple of 128 and is padded."""
        if isinstance(rows, Descriptors):
            return rows
        n, width = rows.shape
        padding = -width % LANES
        padded = np.pad(rows, ((0, 0), (0, padding))) if padding else rows
        starts = np.arange(0, padded.size, max(width + padding, 1), dtype=np.uint64)[:n]
        return cls(frozen(padded.reshape(-1)), frozen(starts), width=width + padding)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def runs(self) -> Runs:
        """The descriptors as kernels take them."""
        return Runs(self.flat, self.peaks, self.starts, self.stride, float(self.longest))

    def part(self, rows: slice) -> "Descriptors":
        """Some of the descriptors, in the same array."""
        return replace(self, starts=self.starts[rows])

    def at(self, places: IntpArray) -> "Descriptors":
        """The descriptors at some places, in the same array."""
        return replace(self, starts=frozen(self.starts[places]))

    def parts(self, *, wide: bool) -> Iterator[tuple[slice, FixedPoint]]:
        """All descriptors in fixed point, a few thousand at a time, each part with its rows.

        All parts share their memory, so that a part is to be used before the next one is
        asked for.
        """
        if wide in self._fixed:
            yield slice(0, len(self)), self._fixed[wide]
            return
        memory = _memory(min(_PART, len(self)), self.width, wide=wide)
        for first in range(0, len(self), _PART):
            rows = slice(first, min(first + _PART, len(self)))
            yield rows, _quantise(self.part(rows), memory)

    def fixed(self, *, wide: bool) -> FixedPoint:
        """All descriptors in fixed point, computed at the first use."""
        if wide not in self._fixed:
            self._fixed[wide] = _quantise(self, _memory(len(self), self.width, wide=wide))
        return self._fixed[wide]

    def joined(self) -> Float32Array:
        """The descriptors copied side by side, (n, 128); only for a width of 128."""
        descriptors = np.empty((len(self), LANES), np.float32)
        join_runs(self.runs, descriptors)
        return descriptors


def _quantise(descriptors: Descriptors, memory: FixedPoint) -> FixedPoint:
    fixed = memory.part(len(descriptors))
    quantise_runs(descriptors.runs, *fixed, block_scratch())
    return FixedPoint(frozen(fixed.directions), frozen(fixed.steps), frozen(fixed.norms))


def _memory(count: int, width: int, *, wide: bool) -> FixedPoint:
    if not wide and width != LANES:
        raise DescriptorError(f"narrow directions are {width} wide, expected {LANES}")
    kind: type[np.uint8 | np.int16] = np.int16 if wide else np.uint8
    directions = aligned_empty((count, width), kind)
    return FixedPoint(directions, np.empty(count, np.float32), np.empty(count, np.float32))


def lengths_of(steps: Float32Array, norms: Float32Array) -> Float32Array:
    """Lengths (n,) of descriptors; not finite if a value is not, or cannot be narrow."""
    with np.errstate(invalid="ignore", over="ignore"):
        lengths: Float32Array = steps * norms
    return lengths


@kept_by_thread
def block_scratch(nonzeros: int = 0) -> Scratch:
    """Scratch memory of kernels for a block of descriptors, and as many nonzeros in each.

    It is the calling thread's, and may be written by its next call of a kernel.
    """
    return new_scratch(int(BLOCK), nonzeros)


@kept_by_thread
def room_for_block(width: int, *, wide: bool) -> Directions:
    """Memory for the directions of as many descriptors as a kernel takes at a time.

    It is the calling thread's, and may be written by its next call of a kernel.
    """
    return _memory(int(BLOCK), width, wide=wide).directions


def is_wide(rows: FixedRows) -> bool:
    """Whether rows in fixed point are to be multiplied with wide directions."""
    return rows.dtype == np.int16


def unit_of(rows: FixedRows) -> int:
    """The largest value of narrow rows in fixed point, the length of wide ones."""
    return _WIDE if is_wide(rows) else _NARROW


def quantise_rows(
    rows: Float32Array | Float64Array, *, wide: bool
) -> tuple[FixedRows, Float64Array]:
    """Rows (n, d) in fixed point, (n, w), and scales (n,) which make them the rows again.

    Rows in fixed point that were divided by their unit and made float32 stay the same.
    """
    padded = rows.shape[1] + -rows.shape[1] % LANES
    exact = rows.astype(np.float64)
    if wide:
        scales = np.linalg.norm(exact, axis=1) / _WIDE
        scales[np.abs(scales * _WIDE - 1) < 1e-3] = 1 / _WIDE
    else:
        scales = np.abs(exact).max(axis=1, initial=0) / _NARROW
    kind: type[np.int8 | np.int16] = np.int16 if wide else np.int8
    integers = aligned_empty((len(rows), padded), kind)
    integers[:, rows.shape[1] :] = 0
    quotients = np.divide(
        exact, scales[:, None], out=np.zeros_like(exact), where=scales[:, None] > 0
    )
    integers[:, : rows.shape[1]] = np.rint(quotients).clip(max=_WIDE - 1)
    return integers, scales
