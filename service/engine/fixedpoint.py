"""Descriptors in fixed point: a direction in 16-bit integers, and a length.

Routing needs only the direction of a descriptor, and a code is linear in its length, so
that both become products of integers, which are faster and the same on every machine.
A direction is rounded to 2⁻¹⁵ of its length: 99.6 % of real descriptors keep their leaf
at depth 16, and values of about one move by at most 2·10⁻⁴.

A descriptor need not be laid out to be read: fast SIFT's are four runs of 32 values in a
feature map that is fifteen times smaller than all of them side by side.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from service.engine.arrays import (
    Float32Array,
    Float64Array,
    Int16Array,
    IntpArray,
    UInt64Array,
    aligned_empty,
    frozen,
)
from service.engine.kernels.fixedpoint import join_runs, quantise_runs
from service.engine.kernels.integers import LANES

__all__ = ["UNIT", "Descriptors", "FixedPoint", "quantise_rows"]

# What a length of one is in a direction.
UNIT = 2**15

# Descriptors that training rounds at a time: a megabyte of directions.
_PART = 4096

_RUN = LANES // 4


class FixedPoint(NamedTuple):
    """Directions (n, w) of int16, w a multiple of 128 and zero beyond d; lengths (n,)."""

    directions: Int16Array
    lengths: Float32Array


@dataclass(frozen=True)
class Descriptors:
    """n descriptors in the array that they were computed in, not copied out of it.

    Each block of 128 values is four runs of 32 in `flat`: run j of descriptor i starts at
    starts[i] + j·stride. A descriptor longer than `longest` counts as scaled down to that
    length.
    """

    flat: Float32Array
    starts: UInt64Array
    stride: int = _RUN
    longest: float = np.inf
    width: int = LANES

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

    def part(self, rows: slice) -> "Descriptors":
        """Some of the descriptors, in the same array."""
        return replace(self, starts=self.starts[rows])

    def at(self, places: IntpArray) -> "Descriptors":
        """The descriptors at some places, in the same array."""
        return replace(self, starts=frozen(self.starts[places]))

    def parts(self) -> Iterator[tuple[slice, "Descriptors"]]:
        """All descriptors, a few thousand at a time, each part with its rows.

        All parts share the memory of their fixed-point form, so that a part is to be used
        before the next one is asked for.
        """
        if "fixed" in self.__dict__:
            yield slice(0, len(self)), self
            return
        memory = _memory(min(_PART, len(self)), self.width)
        for first in range(0, len(self), _PART):
            rows = slice(first, min(first + _PART, len(self)))
            part = self.part(rows)
            part.__dict__["fixed"] = _quantise(part, memory)
            yield rows, part

    @cached_property
    def fixed(self) -> FixedPoint:
        """Directions and lengths in fixed point, computed at the first use."""
        return _quantise(self, _memory(len(self), self.width))

    def joined(self) -> Float32Array:
        """The descriptors copied side by side, (n, 128); only for a width of 128."""
        descriptors = np.empty((len(self), LANES), np.float32)
        join_runs(self.flat, self.starts, self.stride, self.longest, descriptors)
        return descriptors


def _quantise(descriptors: Descriptors, memory: FixedPoint) -> FixedPoint:
    directions = memory.directions[: len(descriptors)]
    lengths = memory.lengths[: len(descriptors)]
    d = descriptors
    quantise_runs(d.flat, d.starts, d.stride, d.longest, directions, lengths)
    return FixedPoint(frozen(directions), frozen(lengths))


def _memory(count: int, width: int) -> FixedPoint:
    return FixedPoint(aligned_empty((count, width), np.int16), np.empty(count, np.float32))


def quantise_rows(rows: Float32Array) -> tuple[Int16Array, Float64Array]:
    """Directions of rows (n, d) in fixed point, (n, w), and their lengths (n,).

    Rows whose length is one but for rounding are not scaled, so that a direction in
    fixed point, made float32 and quantised again, stays the same.
    """
    lengths: Float64Array = np.linalg.norm(rows.astype(np.float64), axis=1)
    lengths[np.abs(lengths - 1) < 1e-3] = 1
    scales = np.divide(UNIT, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    directions = aligned_empty((len(rows), rows.shape[1] + -rows.shape[1] % LANES), np.int16)
    directions[:, rows.shape[1] :] = 0
    directions[:, : rows.shape[1]] = np.rint(rows * scales[:, None]).clip(max=UNIT - 1)
    return directions, lengths
