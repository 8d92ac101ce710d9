"""Vectors that machine code is written with: kinds, constants, and how they are read and stored."""

from collections.abc import Iterable, Sequence
from typing import Any

from numba.core import cgutils

from service.engine.kernels import addresses
from service.engine.kernels.addresses import INT64

__all__ = [
    "BYTE",
    "BYTES",
    "FLOAT",
    "FLOATS",
    "HALVES",
    "INT32",
    "INT64",
    "NOTHING",
    "ONES",
    "PAIRS",
    "SHORT",
    "SHORTS",
    "SUMS",
    "call",
    "copy_numbers",
    "fetch",
    "filled",
    "floats",
    "ir",
    "lanes",
    "load",
    "load_sums",
    "some",
    "store",
    "store_first",
]

ir: Any = cgutils.ir  # type: ignore[attr-defined]  # llvmlite, which writes the machine code

BYTE, SHORT, INT32 = (ir.IntType(bits) for bits in (8, 16, 32))
BYTES = ir.VectorType(BYTE, 32)
SHORTS = ir.VectorType(SHORT, 16)
SUMS = ir.VectorType(INT32, 8)
FLOAT = ir.FloatType()
FLOATS = ir.VectorType(FLOAT, 8)

# Two vectors of eight interleaved, the lower and the upper part of each half of a register, as the
# instructions do it: one value at a time, or two. Then the halves.
ONES = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
PAIRS = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
HALVES = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]

NOTHING = ir.Constant(SUMS, None)
"""Eight sums of nothing."""


def floats(context: Any, builder: Any, kind: Any, array: Any, place: Sequence[Any]) -> Any:
    """Eight float32 from a place of an array on."""
    return load(builder, addresses.at(context, builder, kind, array, place), FLOATS)


def load_sums(builder: Any, address: Any) -> Any:
    """Eight int32."""
    return load(builder, address, SUMS)


def load(builder: Any, address: Any, kind: Any) -> Any:
    """A vector at an address that need not be aligned."""
    vector = builder.load(builder.bitcast(address, kind.as_pointer()))
    vector.align = 1
    return vector


def store(builder: Any, vector: Any, address: Any) -> None:
    """Store a vector at an address that need not be aligned."""
    builder.store(vector, builder.bitcast(address, vector.type.as_pointer())).align = 1


def store_first(builder: Any, vector: Any, count: int, address: Any) -> None:
    """Store the first `count` of eight values, four at the least, and nothing behind them."""
    pointer = builder.bitcast(address, vector.type.element.as_pointer())
    store(builder, some(builder, vector, range(4)), address)
    for place in range(4, count):
        value = builder.extract_element(vector, INT32(place))
        builder.store(value, builder.gep(pointer, [INT64(place)]))


def copy_numbers(builder: Any, numbers: Any, count: int, address: Any) -> None:
    """Copy `count` numbers of rows, four at the least, as int32; nothing behind them is read."""
    kind = ir.VectorType(numbers.type.pointee, 4)
    store(builder, builder.zext(load(builder, numbers, kind), ir.VectorType(INT32, 4)), address)
    target = builder.bitcast(address, INT32.as_pointer())
    for place in range(4, count):
        value = builder.trunc(addresses.number(builder, numbers, place), INT32)
        builder.store(value, builder.gep(target, [INT64(place)]))


def fetch(builder: Any, address: Any) -> None:
    """Ask for a cache line that will be read; no address is wrong."""
    pointer = BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, INT32, INT32, INT32])
    function = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
    to_read, keep, data = INT32(0), INT32(3), INT32(1)
    builder.call(function, [address, to_read, keep, data])


def filled(builder: Any, scalar: Any) -> Any:
    """Eight times the same float."""
    first = builder.insert_element(ir.Constant(FLOATS, ir.Undefined), scalar, INT32(0))
    return some(builder, first, [0] * FLOATS.count)


def call(builder: Any, name: str, kind: Any, operands: list[Any]) -> Any:
    """What an instruction gives, by the name that LLVM has for it."""
    signature = ir.FunctionType(kind, [operand.type for operand in operands])
    return builder.call(builder.module.declare_intrinsic(name, (), signature), operands)


def some(builder: Any, vector: Any, places: Iterable[int]) -> Any:
    """The values of a vector at some places."""
    return builder.shuffle_vector(vector, vector, lanes(places))


def lanes(places: Iterable[int]) -> Any:
    """Places of vectors, as LLVM takes them."""
    numbers = list(places)
    return ir.Constant(ir.VectorType(INT32, len(numbers)), numbers)
