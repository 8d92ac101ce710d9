"""What numba cannot spell: dot products of small integers, rounding to bytes, and a prefetch.

numba widens every integer product to 64 bits, and LLVM turns the narrowed loop into half-width
vectors only. Eight dot products are computed together, because adding up one register takes as
long as the products in it. The instructions are in `instructions.py`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from service.engine.arrays import (
    CACHE_LINE,
    Directions,
    FixedRows,
    Float32Array,
    Int32Array,
    UInt64Array,
)
from service.engine.compiling import part
from service.engine.kernels import instructions as machine

__all__ = [
    "BATCH",
    "LANES",
    "RUN",
    "Index",
    "Pairs",
    "add_dots",
    "end_batch",
    "new_pairs",
    "prefetch",
    "prefetch_lanes",
    "round_run",
]

LANES = machine.LANES
# How many dot products are computed together.
BATCH = 8
# How many values are rounded together.
RUN = 32

Index = np.uint64 | int

_BATCH, _ONE = np.uint64(BATCH), np.uint64(1)


class Pairs(NamedTuple):
    """Rows of two arrays, a factor for each pair, and its product; scratch memory of kernels."""

    rows: UInt64Array
    others: UInt64Array
    products: Int32Array
    factors: Float32Array


@part
def new_pairs(count: Index) -> Pairs:
    """Room for so many pairs, in whole batches, that all name the first rows."""
    padded = (np.uint64(count) + _BATCH - _ONE) // _BATCH * _BATCH
    return Pairs(
        np.zeros(padded, np.uint64),
        np.zeros(padded, np.uint64),
        np.zeros(padded, np.int32),
        np.zeros(padded, np.float32),
    )


@part
def end_batch(pairs: Pairs, count: Index) -> None:
    """Let what follows the first `count` pairs, in the last batch, name rows that exist."""
    for i in range(np.uint64(count), (np.uint64(count) + _BATCH - _ONE) // _BATCH * _BATCH):
        pairs.rows[i] = 0
        pairs.others[i] = 0


def _add_dots(_: Any, a: Any, b: Any, pairs: Any, first: Any, column: Any) -> Any:
    """Σ a[rows[i], k]·b[others[i], k] over `LANES` columns k, for the `BATCH` pairs from `first`.

    It is added to products[i], or put there for the first column. Values of a are from 0 to 127
    and those of b from -127 to 127, both bytes; or both are int16 rows of lengths up to 2**15.
    So no sum overflows its 32 bits, nor a sum of two products of bytes its 16. Indices are not
    checked.
    """
    if a.dtype.bitwidth != b.dtype.bitwidth:
        raise TypingError(
            f"rows of {a.dtype} times rows of {b.dtype}, expected both narrow or wide"
        )
    signature = types.void(a, b, pairs, types.uint64, types.uint64)
    del first, column

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds, (a, b, pairs, first, column) = signature.args, args
        size = kinds[0].dtype.bitwidth // 8
        multiply = machine.multiply_bytes if size == 1 else machine.multiply_shorts
        offset = builder.mul(column, machine.INT64(size))
        rows, others, products = (
            machine.item(context, builder, kind, builder.extract_value(pairs, place), first)
            for place, kind in enumerate(kinds[2].types[:3])
        )
        sums = []
        for i in range(BATCH):
            addresses = []
            for kind, array, numbers in ((kinds[0], a, rows), (kinds[1], b, others)):
                number = builder.load(builder.gep(numbers, [machine.INT64(i)]))
                row = machine.row(context, builder, kind, array, number)
                addresses.append(builder.gep(row, [offset]))
            sums.append(multiply(context, builder, addresses))
        is_first = builder.icmp_unsigned("==", column, machine.INT64(0))
        before = builder.select(is_first, machine.NOTHING, machine.load_sums(builder, products))
        machine.store(builder, builder.add(before, machine.sum_each(builder, sums)), products)
        return context.get_dummy_value()

    return signature, generate


def _round_run(_: Any, flat: Any, start: Any, scale: Any, rows: Any, row: Any, column: Any) -> Any:
    """Round the `RUN` values of `flat` from `start` times `scale`, to bytes of a row.

    The products are between 0 and 127; of others any byte may become.
    """
    signature = types.void(flat, types.uint64, types.float32, rows, types.uint64, types.uint64)
    del start, scale, row, column

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flat, start, scale, rows, row, column = args
        source = machine.item(context, builder, signature.args[0], flat, start)
        target = machine.row(context, builder, signature.args[3], rows, row)
        packed = machine.round_to_bytes(context, builder, source, scale)
        machine.store(builder, packed, builder.gep(target, [column]))
        return context.get_dummy_value()

    return signature, generate


def _prefetch(_: Any, array: Any, row: Any, offset: Any) -> Any:
    """Ask for the cache line `offset` bytes into a row; any row number is harmless."""
    signature = types.void(array, types.uint64, types.uint64)
    del row, offset

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = machine.row(context, builder, signature.args[0], args[0], args[1])
        machine.fetch(builder, builder.gep(row, [args[2]]))
        return context.get_dummy_value()

    return signature, generate


def _prefetch_lanes(_: Any, array: Any, row: Any) -> Any:
    """Ask for the first `LANES` values of a row; any row number is harmless."""
    signature = types.void(array, types.uint64)
    del row

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = machine.row(context, builder, signature.args[0], args[0], args[1])
        size = LANES * signature.args[0].dtype.bitwidth // 8
        for offset in range(0, size, CACHE_LINE):
            machine.fetch(builder, builder.gep(row, [machine.INT64(offset)]))
        return context.get_dummy_value()

    return signature, generate


# What kernels call has other arguments than what generates it.
add_dots = cast(
    "Callable[[Directions, FixedRows | Directions, Pairs, Index, Index], None]",
    intrinsic(_add_dots),
)
round_run = cast(
    "Callable[[Float32Array, Index, np.float32, Directions, Index, Index], None]",
    intrinsic(_round_run),
)
prefetch = cast("Callable[[npt.NDArray[Any], Index, Index], None]", intrinsic(_prefetch))
prefetch_lanes = cast("Callable[[FixedRows, Index], None]", intrinsic(_prefetch_lanes))
