"""Machine code for the integers of `integers.py`, written with llvmlite.

Bytes are multiplied and added up by the best instruction that the machine has: vpdpbusd of VNNI
(four products at once), else vpmaddubsw of AVX2 (two), sdot on ARM (four); everywhere else in
plain vectors, which LLVM makes the best of. All give the same sums.
"""

from collections.abc import Sequence
from typing import Any

from numba.core import cgutils

from service.engine.kernels import addresses
from service.engine.kernels.vectors import (
    BYTE,
    BYTES,
    FLOATS,
    HALVES,
    INT32,
    INT64,
    NOTHING,
    ONES,
    PAIRS,
    SHORT,
    SHORTS,
    SUMS,
    call,
    filled,
    lanes,
    load,
    load_sums,
    some,
)

__all__ = [
    "WIDE",
    "add_scaled",
    "children",
    "combine_columns",
    "multiply",
    "multiply_bytes",
    "round_to_bytes",
    "sum_each",
    "variable",
    "wide_from_bytes",
]

ir: Any = cgutils.ir  # type: ignore[attr-defined]  # llvmlite, which writes the machine code

LANES = addresses.LANES

# How many floats are added up together in registers, beside one another.
WIDE = 16
_WIDE_FLOATS = ir.VectorType(ir.FloatType(), WIDE)

# --- products ------------------------------------------------------------------------


def multiply(context: Any, builder: Any, kind: Any, addresses: Sequence[Any]) -> Any:
    """Eight sums that add up to the product of `LANES` bytes or int16 at two addresses."""
    by_size = {8: multiply_bytes, 16: multiply_shorts}
    return by_size[kind.bitwidth](context, builder, addresses)


def multiply_bytes(context: Any, builder: Any, addresses: Sequence[Any]) -> Any:
    """Eight sums that add up to the product of `LANES` bytes at two addresses.

    The first are between 0 and 127, the others have signs.
    """
    multiply = _bytes_of_any
    if _has(context, "avx512vnni", "avxvnni"):
        multiply = _bytes_of_vnni
    elif _has(context, "avx2"):
        multiply = _bytes_of_avx2
    elif _has(context, "dotprod"):
        multiply = _bytes_of_arm
    total = NOTHING
    for place in range(0, LANES, BYTES.count):
        factors = [
            load(builder, builder.gep(address, [INT64(place)]), BYTES) for address in addresses
        ]
        total = multiply(builder, total, factors)
    return total


def _bytes_of_vnni(builder: Any, total: Any, factors: list[Any]) -> Any:
    fours = [builder.bitcast(factor, SUMS) for factor in factors]
    return call(builder, "llvm.x86.avx512.vpdpbusd.256", SUMS, [total, *fours])


def _bytes_of_avx2(builder: Any, total: Any, factors: list[Any]) -> Any:
    pairs = call(builder, "llvm.x86.avx2.pmadd.ub.sw", SHORTS, factors)
    ones = ir.Constant(SHORTS, [1] * SHORTS.count)
    return builder.add(total, call(builder, "llvm.x86.avx2.pmadd.wd", SUMS, [pairs, ones]))


def _bytes_of_arm(builder: Any, total: Any, factors: list[Any]) -> Any:
    """Of signed bytes, which those up to 127 are, in two halves."""
    name, sums = "llvm.aarch64.neon.sdot.v4i32.v16i8", []
    for half in (0, 1):
        before = some(builder, total, range(4 * half, 4 * half + 4))
        own = [some(builder, factor, range(16 * half, 16 * half + 16)) for factor in factors]
        sums.append(call(builder, name, before.type, [before, *own]))
    return builder.shuffle_vector(*sums, lanes(range(8)))


def _bytes_of_any(builder: Any, total: Any, factors: list[Any]) -> Any:
    wide = ir.VectorType(SHORT, BYTES.count)
    # Fits 16 bits, and so does the sum of two.
    product = builder.mul(*(builder.sext(factor, wide) for factor in factors))
    pairs = builder.add(*(some(builder, product, range(first, 32, 2)) for first in (0, 1)))
    for first in (0, 1):
        own = some(builder, pairs, range(first, SHORTS.count, 2))
        total = builder.add(total, builder.sext(own, SUMS))
    return total


def multiply_shorts(_: Any, builder: Any, addresses: Sequence[Any]) -> Any:
    """Eight sums that add up to the product of `LANES` int16 at two addresses.

    Written so that LLVM knows it: vpmaddwd on x86, smlal on ARM.
    """
    wide = ir.VectorType(INT32, SHORTS.count)
    total = NOTHING
    for place in range(0, LANES, SHORTS.count):
        factors = (
            load(builder, builder.gep(address, [INT64(2 * place)]), SHORTS) for address in addresses
        )
        product = builder.mul(*(builder.sext(factor, wide) for factor in factors))
        even, odd = (some(builder, product, range(first, 16, 2)) for first in (0, 1))
        total = builder.add(total, builder.add(even, odd))
    return total


def sum_each(builder: Any, vectors: list[Any]) -> Any:
    """The sum of each of eight vectors of eight, in one vector.

    By interleaving, as a transposition does it: the instructions that add neighbours are three
    each, and a walk took 6 % longer in a probe in C.
    """

    def halved(a: Any, b: Any, low: list[int], high: list[int]) -> Any:
        return builder.add(*(builder.shuffle_vector(a, b, lanes(own)) for own in (low, high)))

    for places in (ONES, PAIRS, HALVES):
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [halved(a, b, *places) for a, b in pairs]
    return vectors[0]


# --- decisions -----------------------------------------------------------------------


def children(builder: Any, nodes: Any, products: Any, cuts: Sequence[Any], factors: Any) -> Any:
    """The children of eight nodes: the right one where a product exceeds its cut times a factor.

    All but the products are addresses. Cuts are read one by one, because gathering them is slow on
    many machines.
    """
    limits = ir.Constant(FLOATS, ir.Undefined)
    for place, address in enumerate(cuts):
        limits = builder.insert_element(limits, builder.load(address), INT32(place))
    limits = builder.fmul(limits, load(builder, factors, FLOATS))
    product = builder.sitofp(products, FLOATS)
    right = builder.zext(builder.fcmp_ordered(">", product, limits), SUMS)
    one = ir.Constant(SUMS, [1] * SUMS.count)
    left = builder.add(builder.shl(load_sums(builder, nodes), one), one)
    return builder.add(left, right)


# --- rounding ------------------------------------------------------------------------


def round_to_bytes(context: Any, builder: Any, source: Any, scale: Any) -> Any:
    """32 floats from an address, times a scale, to the nearest whole numbers up to 127."""
    scales = filled(builder, scale)
    products = [
        builder.fmul(load(builder, builder.gep(source, [INT64(place)]), FLOATS), scales)
        for place in range(0, BYTES.count, FLOATS.count)
    ]
    return (_packed_by_avx2 if _has(context, "avx2") else _packed)(builder, products)


def _packed_by_avx2(builder: Any, products: list[Any]) -> Any:
    """In 13 ns for 128 values where the form for any machine takes 18."""
    whole = [call(builder, "llvm.x86.avx.cvt.ps2dq.256", SUMS, [each]) for each in products]
    shorts = [
        call(builder, "llvm.x86.avx2.packssdw", SHORTS, whole[place : place + 2])
        for place in (0, 2)
    ]
    # Each half of a register was packed by itself.
    fours = builder.bitcast(call(builder, "llvm.x86.avx2.packuswb", BYTES, shorts), SUMS)
    return some(builder, fours, [0, 4, 1, 5, 2, 6, 3, 7])


def _packed(builder: Any, products: list[Any]) -> Any:
    whole = [
        builder.fptosi(call(builder, "llvm.rint.v8f32", FLOATS, [product]), SUMS)
        for product in products
    ]
    shorts = [
        builder.trunc(builder.shuffle_vector(a, b, lanes(range(16))), SHORTS)
        for a, b in (whole[:2], whole[2:])
    ]
    return builder.trunc(builder.shuffle_vector(*shorts, lanes(range(32))), BYTES)


# --- sums in registers ---------------------------------------------------------------


def variable(builder: Any) -> Any:
    """Room for `WIDE` floats, zeros at first, that LLVM keeps in registers."""
    room = cgutils.alloca_once(builder, _WIDE_FLOATS)
    builder.store(ir.Constant(_WIDE_FLOATS, None), room)
    return room


def wide_from_bytes(context: Any, builder: Any, kind: Any, array: Any, place: Sequence[Any]) -> Any:
    """`WIDE` int8 from a place of an array on, as floats."""
    source = addresses.at(context, builder, kind, array, place)
    return builder.sitofp(load(builder, source, ir.VectorType(BYTE, WIDE)), _WIDE_FLOATS)


def add_scaled(builder: Any, total: Any, address: Any, factors: Any) -> None:
    """Add a float at an address, times each of `WIDE` factors, to a variable."""
    scalar = builder.load(builder.bitcast(address, ir.FloatType().as_pointer()))
    scales = builder.insert_element(ir.Constant(_WIDE_FLOATS, ir.Undefined), scalar, INT32(0))
    scales = builder.shuffle_vector(scales, scales, lanes([0] * WIDE))
    name = f"llvm.fmuladd.v{WIDE}f32"
    operands = [scales, factors, builder.load(total)]
    builder.store(call(builder, name, _WIDE_FLOATS, operands), total)


def combine_columns(
    builder: Any, kind: Any, address: Any, count: int, products: Any, scale: Any
) -> Any:
    """Columns of int16 or floats from an address, times eight products, added up and scaled.

    There are `count` columns of as many. Of eight sums, the first `count` mean something.
    """
    weights = builder.fmul(builder.sitofp(products, FLOATS), filled(builder, scale))
    total = ir.Constant(FLOATS, None)
    for column in range(count):
        place = INT64(count * column * kind.bitwidth // 8)
        factors = _load_as_floats(builder, kind, builder.gep(address, [place]))
        weight = some(builder, weights, [column] * FLOATS.count)
        total = call(builder, "llvm.fmuladd.v8f32", FLOATS, [factors, weight, total])
    return total


def _load_as_floats(builder: Any, kind: Any, address: Any) -> Any:
    """Eight int16 or floats."""
    if kind.bitwidth == SHORT.width:
        shorts = load(builder, address, ir.VectorType(SHORT, 8))
        return builder.sitofp(builder.sext(shorts, SUMS), FLOATS)
    return load(builder, address, FLOATS)


# --- words of llvmlite ---------------------------------------------------------------


def _has(context: Any, *features: str) -> bool:
    """Whether the machine that is compiled for has one of these features."""
    _, name, listed = context.codegen().magic_tuple()
    found = {*listed.split(","), *_IMPLIED.get(name, ())}
    return any(f"+{feature}" in found for feature in features)


# What a level of CPUs has without saying so; images are compiled for one, see the Dockerfile.
_IMPLIED = {"x86-64-v3": ("+avx2",), "x86-64-v4": ("+avx2",)}
