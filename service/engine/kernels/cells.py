"""What numba cannot spell: cells of a feature map, from rows of bands, in registers.

One number after the other, a feature map's rows took a quarter of its time to be laid out.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from service.engine.arrays import Float32Array, UInt32Array
from service.engine.kernels import addresses
from service.engine.kernels import instructions as machine
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
            one = machine.floats(context, builder, upper_kind, upper, place)
            two = machine.floats(context, builder, lower_kind, lower, place)
            bands.append(builder.fadd(one, two))
        first = builder.lshr(column, addresses.INT64(1))
        for number, cell in enumerate(machine.transposed(builder, bands)):
            pair = builder.add(first, addresses.INT64(number // 2))
            place = [row, addresses.INT64(number % 2), pair, addresses.INT64(0)]
            machine.store(builder, cell, addresses.at(context, builder, kind, features, place))
        for parity, own in enumerate(machine.split(builder, machine.largest_bits(builder, bands))):
            place = [row, addresses.INT64(parity), first]
            machine.store(builder, own, addresses.at(context, builder, peaks_kind, peaks, place))
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
        return machine.largest_of_fours(builder, rows)

    return signature, generate


# What kernels call has other arguments than what generates it.
store_cells = cast(
    "Callable[[Float32Array, Float32Array, int, Float32Array, UInt32Array, int], None]",
    intrinsic(_store_cells),
)
peak_of_cells = cast("Callable[[UInt32Array, Index, Index], np.uint32]", intrinsic(_peak_of_cells))
