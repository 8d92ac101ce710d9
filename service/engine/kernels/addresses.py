"""Where a value of an array lies, for machine code that is written with llvmlite.

No index is checked.
"""

from collections.abc import Sequence
from typing import Any

from numba.core import cgutils

__all__ = ["INT64", "LANES", "after", "at", "item", "length", "number", "numbers", "row"]

ir: Any = cgutils.ir  # type: ignore[attr-defined]  # llvmlite, which writes the machine code

INT64 = ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()

# How many products of integers a dot product adds up; rows are padded to a multiple of it.
LANES = 128


def row(context: Any, builder: Any, kind: Any, array: Any, number: Any) -> Any:
    """Address of a row of an array, in bytes; rows of bytes are `LANES` wide."""
    fields = context.make_array(kind)(context, builder, array)
    is_narrow = kind.dtype.bitwidth == 8
    stride = INT64(LANES) if is_narrow else builder.extract_value(fields.strides, 0)
    base = builder.bitcast(fields.data, _BYTES)
    return builder.gep(base, [builder.mul(number, stride)])


def item(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
    """Address of a value of a flat array."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [place])


def numbers(context: Any, builder: Any, kind: Any, lists: Any, place: Any, first: Any) -> Any:
    """Address of the numbers from `first` on in one of the lists that are rows of an array."""
    pointer = ir.IntType(kind.dtype.bitwidth).as_pointer()
    address = builder.bitcast(row(context, builder, kind, lists, place), pointer)
    return builder.gep(address, [first])


def number(builder: Any, numbers: Any, place: int) -> Any:
    """One of some numbers of rows, none of which is negative."""
    return builder.zext(builder.load(builder.gep(numbers, [INT64(place)])), INT64)


def length(context: Any, builder: Any, kind: Any, array: Any, dimension: int) -> Any:
    """How long an array is in a dimension."""
    fields = context.make_array(kind)(context, builder, array)
    return builder.extract_value(fields.shape, dimension)


def at(context: Any, builder: Any, kind: Any, array: Any, place: Sequence[Any]) -> Any:
    """Address of a value of an array of any dimensions; the place is not checked."""
    fields = context.make_array(kind)(context, builder, array)
    offset = INT64(0)
    for dimension, number in enumerate(place):
        stride = builder.extract_value(fields.strides, dimension)
        offset = builder.add(offset, builder.mul(number, stride))
    return builder.gep(builder.bitcast(fields.data, _BYTES), [offset])


def after(builder: Any, address: Any, offset: int, bits: int) -> Any:
    """Address of an integer of so many bits, `offset` bytes after another one."""
    pointer = ir.IntType(bits).as_pointer()
    return builder.bitcast(builder.gep(address, [INT64(offset)]), pointer)
