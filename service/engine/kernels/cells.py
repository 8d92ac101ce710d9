"""What numba cannot spell: cells of a feature map, from rows of bands, in registers.

One number after the other, a feature map's rows took a quarter of its time to be laid out.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from service.engine.arrays import Float32Array, UInt32Array
from service.engine.kernels import addresses, vectors
from service.engine.kernels.integers import Index

__all__ = ["COLUMNS", "peak_of_cells", "store_cells"]

# Columns that are stored together.
COLUMNS = 8

# Cells on each side of a descriptor.
_CELLS = 4


def _store_cells(
    _: Any, upper: Any, lower: Any, column: Any, features: Any, peaks: Any, row: Any
) -> Any:
    """Store the sums of two rows, of eight bands each, for `COLUMNS` columns from an even one.

    upper, lower (8, ≥ column + 8); features (rows, 2, ≥ ⌈(column + 8) / 2⌉, 8) get those of even
    columns in one half of a row and those of odd ones in the other; peaks (rows, 2, the same) get
    the bits of the largest in each column. Indices are not checked.
    """
    signature = types.void(upper, lower, types.uint64, features, peaks, types.uint64)
    del column, row

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        upper_kind, lower_kind, _, kind, peaks_kind, _ = signature.args
        upper, lower, column, features, peaks, row = args
        bands = []
        for band in range(COLUMNS):
            place = [addresses.INT64(band), column]
            one = vectors.floats(context, builder, upper_kind, upper, place)
            two = vectors.floats(context, builder, lower_kind, lower, place)
            bands.append(builder.fadd(one, two))
        first = builder.lshr(column, addresses.INT64(1))
        for number, cell in enumerate(_transposed(builder, bands)):
            pair = builder.add(first, addresses.INT64(number // 2))
            place = [row, addresses.INT64(number % 2), pair, addresses.INT64(0)]
            vectors.store(builder, cell, addresses.at(context, builder, kind, features, place))
        for parity, own in enumerate(_split(builder, _largest_bits(builder, bands))):
            place = [row, addresses.INT64(parity), first]
            vectors.store(builder, own, addresses.at(context, builder, peaks_kind, peaks, place))
        return context.get_dummy_value()

    return signature, generate


def _peak_of_cells(_: Any, peaks: Any, first: Any, step: Any) -> Any:
    """The largest of four times four peaks: four from `first` on, and as many each `step` later.

    By a loop it took three times as long, as long as without peaks.
    """
    signature = types.uint32(peaks, types.uint64, types.uint64)
    del first, step

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        peaks, place, step = args
        rows = []
        for _ in range(_CELLS):
            rows.append(addresses.item(context, builder, signature.args[0], peaks, place))
            place = builder.add(place, step)
        return _largest_of_fours(builder, rows)

    return signature, generate


def _transposed(builder: Any, rows: Sequence[Any]) -> list[Any]:
    """Eight vectors of eight floats, rows of a matrix, to its columns."""
    ones = [_mixed(builder, rows, i, i + 1, own) for i in range(0, 8, 2) for own in vectors.ONES]
    pairs = [_mixed(builder, ones, i, i + 2, own) for i in (0, 1, 4, 5) for own in vectors.PAIRS]
    return [_mixed(builder, pairs, i, i + 4, own) for own in vectors.HALVES for i in range(4)]


def _mixed(builder: Any, rows: Sequence[Any], a: int, b: int, places: list[int]) -> Any:
    return builder.shuffle_vector(rows[a], rows[b], vectors.lanes(places))


def _split(builder: Any, vector: Any) -> list[Any]:
    """The values of a vector of eight at even places, and those at odd ones."""
    return [vectors.some(builder, vector, range(first, 8, 2)) for first in (0, 1)]


def _largest_bits(builder: Any, rows: Sequence[Any]) -> Any:
    """The bits of the largest in each column of some rows of eight floats, in the order of bits.

    Negative zero counts as zero.
    """
    zero, largest = vectors.ir.Constant(vectors.FLOATS, None), vectors.NOTHING
    for row in rows:
        bits = builder.bitcast(builder.fadd(row, zero), vectors.SUMS)
        largest = _larger(builder, bits, largest)
    return largest


def _largest_of_fours(builder: Any, rows: Sequence[Any]) -> Any:
    """The largest of four uint32 from each of some addresses on."""
    largest, *others = (
        vectors.load(builder, row, vectors.ir.VectorType(vectors.INT32, 4)) for row in rows
    )
    for other in others:
        largest = _larger(builder, largest, other)
    for places in ([2, 3, 0, 1], [1, 0, 3, 2]):
        largest = _larger(builder, largest, vectors.some(builder, largest, places))
    return builder.extract_element(largest, vectors.INT32(0))


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_unsigned(">", a, b), a, b)


# What kernels call has other arguments than what generates it.
store_cells = cast(
    "Callable[[Float32Array, Float32Array, int, Float32Array, UInt32Array, int], None]",
    intrinsic(_store_cells),
)
peak_of_cells = cast("Callable[[UInt32Array, Index, Index], np.uint32]", intrinsic(_peak_of_cells))
