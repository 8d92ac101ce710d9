"""What numba cannot spell: eight rows of numbers to eight columns, in registers.

One number after the other, a feature map's rows took a quarter of its time to be laid out.
"""

from collections.abc import Callable
from typing import Any, cast

from numba.core import types
from numba.extending import intrinsic

from service.engine.arrays import Float32Array
from service.engine.kernels import addresses
from service.engine.kernels import instructions as machine

__all__ = ["COLUMNS", "store_cells"]

# Columns that are stored together.
COLUMNS = 8


def _store_cells(_: Any, upper: Any, lower: Any, column: Any, features: Any, row: Any) -> Any:
    """Store the sums of two rows, of eight bands each, for `COLUMNS` columns from an even one.

    upper, lower (8, ≥ column + 8); features (rows, 2, ≥ ⌈(column + 8) / 2⌉, 8) get those of even
    columns in one half of a row and those of odd ones in the other. Indices are not checked.
    """
    signature = types.void(upper, lower, types.uint64, features, types.uint64)
    del column, row

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (upper_kind, lower_kind, _, kind, _), (upper, lower, column, features, row) = (
            signature.args,
            args,
        )
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
        return context.get_dummy_value()

    return signature, generate


# What kernels call has other arguments than what generates it.
store_cells = cast(
    "Callable[[Float32Array, Float32Array, int, Float32Array, int], None]",
    intrinsic(_store_cells),
)
