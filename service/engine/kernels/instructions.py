"""Machine code for the integers of `integers.py`, written with llvmlite.

Bytes are multiplied and added up by the best instruction that the machine has: vpdpbusd of VNNI
(four products at once), else vpmaddubsw of AVX2 (two), sdot on ARM (four); everywhere else in
plain vectors, which LLVM makes the best of. All give the same sums.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from numba.core import cgutils

from service.engine.kernels import addresses

__all__ = [
    "FLOAT",
    "NOTHING",
    "WIDE",
    "add_scaled",
    "children",
    "combine_columns",
    "copy_numbers",
    "fetch",
    "floats",
    "largest_bits",
    "largest_of_fours",
    "load_sums",
    "multiply",
    "multiply_bytes",
    "round_to_bytes",
    "split",
    "store",
    "store_first",
    "sum_each",
    "transposed",
    "variable",
    "wide_from_bytes",
]

ir: Any = cgutils.ir  # type: ignore[attr-defined]  # llvmlite, which writes the machine code

INT64 = addresses.INT64
_BYTE, _SHORT, _INT32 = (ir.IntType(bits) for bits in (8, 16, 32))
_BYTES = ir.VectorType(_BYTE, 32)
_SHORTS = ir.VectorType(_SHORT, 16)
_EIGHT_SHORTS = ir.VectorType(_SHORT, 8)
_SUMS = ir.VectorType(_INT32, 8)
FLOAT = ir.FloatType()
_FLOATS = ir.VectorType(FLOAT, 8)

LANES = addresses.LANES

# How many floats are added up together in registers, beside one another.
WIDE = 16
_WIDE_FLOATS = ir.VectorType(ir.FloatType(), WIDE)

# Two vectors of eight interleaved, the lower and the upper part of each half of a register, as the
# instructions do it: one value at a time, or two. Then the halves.
_ONES = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
_PAIRS = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
_HALVES = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]

NOTHING = ir.Constant(_SUMS, None)
"""Eight sums of nothing."""


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
    for place in range(0, LANES, _BYTES.count):
        factors = [
            _load(builder, builder.gep(address, [INT64(place)]), _BYTES) for address in addresses
        ]
        total = multiply(builder, total, factors)
    return total


def _bytes_of_vnni(builder: Any, total: Any, factors: list[Any]) -> Any:
    fours = [builder.bitcast(factor, _SUMS) for factor in factors]
    return _call(builder, "llvm.x86.avx512.vpdpbusd.256", _SUMS, [total, *fours])


def _bytes_of_avx2(builder: Any, total: Any, factors: list[Any]) -> Any:
    pairs = _call(builder, "llvm.x86.avx2.pmadd.ub.sw", _SHORTS, factors)
    ones = ir.Constant(_SHORTS, [1] * _SHORTS.count)
    return builder.add(total, _call(builder, "llvm.x86.avx2.pmadd.wd", _SUMS, [pairs, ones]))


def _bytes_of_arm(builder: Any, total: Any, factors: list[Any]) -> Any:
    """Of signed bytes, which those up to 127 are, in two halves."""
    name, sums = "llvm.aarch64.neon.sdot.v4i32.v16i8", []
    for half in (0, 1):
        before = _some(builder, total, range(4 * half, 4 * half + 4))
        own = [_some(builder, factor, range(16 * half, 16 * half + 16)) for factor in factors]
        sums.append(_call(builder, name, before.type, [before, *own]))
    return builder.shuffle_vector(*sums, _lanes(range(8)))


def _bytes_of_any(builder: Any, total: Any, factors: list[Any]) -> Any:
    wide = ir.VectorType(_SHORT, _BYTES.count)
    # Fits 16 bits, and so does the sum of two.
    product = builder.mul(*(builder.sext(factor, wide) for factor in factors))
    pairs = builder.add(*(_some(builder, product, range(first, 32, 2)) for first in (0, 1)))
    for first in (0, 1):
        own = _some(builder, pairs, range(first, _SHORTS.count, 2))
        total = builder.add(total, builder.sext(own, _SUMS))
    return total


def multiply_shorts(_: Any, builder: Any, addresses: Sequence[Any]) -> Any:
    """Eight sums that add up to the product of `LANES` int16 at two addresses.

    Written so that LLVM knows it: vpmaddwd on x86, smlal on ARM.
    """
    wide = ir.VectorType(_INT32, _SHORTS.count)
    total = NOTHING
    for place in range(0, LANES, _SHORTS.count):
        factors = (
            _load(builder, builder.gep(address, [INT64(2 * place)]), _SHORTS)
            for address in addresses
        )
        product = builder.mul(*(builder.sext(factor, wide) for factor in factors))
        even, odd = (_some(builder, product, range(first, 16, 2)) for first in (0, 1))
        total = builder.add(total, builder.add(even, odd))
    return total


def sum_each(builder: Any, vectors: list[Any]) -> Any:
    """The sum of each of eight vectors of eight, in one vector.

    By interleaving, as a transposition does it: the instructions that add neighbours are three
    each, and a walk took 6 % longer in a probe in C.
    """

    def halved(a: Any, b: Any, low: list[int], high: list[int]) -> Any:
        return builder.add(*(builder.shuffle_vector(a, b, _lanes(own)) for own in (low, high)))

    for places in (_ONES, _PAIRS, _HALVES):
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [halved(a, b, *places) for a, b in pairs]
    return vectors[0]


# --- decisions -----------------------------------------------------------------------


def children(builder: Any, nodes: Any, products: Any, cuts: Sequence[Any], factors: Any) -> Any:
    """The children of eight nodes: the right one where a product exceeds its cut times a factor.

    All but the products are addresses. Cuts are read one by one, because gathering them is slow on
    many machines.
    """
    limits = ir.Constant(_FLOATS, ir.Undefined)
    for place, address in enumerate(cuts):
        limits = builder.insert_element(limits, builder.load(address), _INT32(place))
    limits = builder.fmul(limits, _load(builder, factors, _FLOATS))
    product = builder.sitofp(products, _FLOATS)
    right = builder.zext(builder.fcmp_ordered(">", product, limits), _SUMS)
    one = ir.Constant(_SUMS, [1] * _SUMS.count)
    left = builder.add(builder.shl(load_sums(builder, nodes), one), one)
    return builder.add(left, right)


# --- rounding ------------------------------------------------------------------------


def round_to_bytes(context: Any, builder: Any, source: Any, scale: Any) -> Any:
    """32 floats from an address, times a scale, to the nearest whole numbers up to 127."""
    scales = _filled(builder, scale)
    products = [
        builder.fmul(_load(builder, builder.gep(source, [INT64(place)]), _FLOATS), scales)
        for place in range(0, _BYTES.count, _FLOATS.count)
    ]
    return (_packed_by_avx2 if _has(context, "avx2") else _packed)(builder, products)


def _packed_by_avx2(builder: Any, products: list[Any]) -> Any:
    """In 13 ns for 128 values where the form for any machine takes 18."""
    whole = [_call(builder, "llvm.x86.avx.cvt.ps2dq.256", _SUMS, [each]) for each in products]
    shorts = [
        _call(builder, "llvm.x86.avx2.packssdw", _SHORTS, whole[place : place + 2])
        for place in (0, 2)
    ]
    # Each half of a register was packed by itself.
    fours = builder.bitcast(_call(builder, "llvm.x86.avx2.packuswb", _BYTES, shorts), _SUMS)
    return _some(builder, fours, [0, 4, 1, 5, 2, 6, 3, 7])


def _packed(builder: Any, products: list[Any]) -> Any:
    whole = [
        builder.fptosi(_call(builder, "llvm.rint.v8f32", _FLOATS, [product]), _SUMS)
        for product in products
    ]
    shorts = [
        builder.trunc(builder.shuffle_vector(a, b, _lanes(range(16))), _SHORTS)
        for a, b in (whole[:2], whole[2:])
    ]
    return builder.trunc(builder.shuffle_vector(*shorts, _lanes(range(32))), _BYTES)


# --- order ---------------------------------------------------------------------------


def transposed(builder: Any, rows: Sequence[Any]) -> list[Any]:
    """Eight vectors of eight floats, rows of a matrix, to its columns."""
    ones = [_mixed(builder, rows, i, i + 1, own) for i in range(0, 8, 2) for own in _ONES]
    pairs = [_mixed(builder, ones, i, i + 2, own) for i in (0, 1, 4, 5) for own in _PAIRS]
    return [_mixed(builder, pairs, i, i + 4, own) for own in _HALVES for i in range(4)]


def _mixed(builder: Any, vectors: Sequence[Any], a: int, b: int, places: list[int]) -> Any:
    return builder.shuffle_vector(vectors[a], vectors[b], _lanes(places))


def split(builder: Any, vector: Any) -> list[Any]:
    """The values of a vector of eight at even places, and those at odd ones."""
    return [_some(builder, vector, range(first, 8, 2)) for first in (0, 1)]


def largest_bits(builder: Any, rows: Sequence[Any]) -> Any:
    """The bits of the largest in each column of some rows of eight floats, in the order of bits.

    Negative zero counts as zero.
    """
    zero, largest = ir.Constant(_FLOATS, None), NOTHING
    for row in rows:
        bits = builder.bitcast(builder.fadd(row, zero), _SUMS)
        largest = _larger(builder, bits, largest)
    return largest


def largest_of_fours(builder: Any, rows: Sequence[Any]) -> Any:
    """The largest of four uint32 from each of some addresses on."""
    largest, *others = (_load(builder, row, ir.VectorType(_INT32, 4)) for row in rows)
    for other in others:
        largest = _larger(builder, largest, other)
    for places in ([2, 3, 0, 1], [1, 0, 3, 2]):
        largest = _larger(builder, largest, _some(builder, largest, places))
    return builder.extract_element(largest, _INT32(0))


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_unsigned(">", a, b), a, b)


# --- sums in registers ---------------------------------------------------------------


def variable(builder: Any) -> Any:
    """Room for `WIDE` floats, zeros at first, that LLVM keeps in registers."""
    room = cgutils.alloca_once(builder, _WIDE_FLOATS)
    builder.store(ir.Constant(_WIDE_FLOATS, None), room)
    return room


def wide_from_bytes(context: Any, builder: Any, kind: Any, array: Any, place: Sequence[Any]) -> Any:
    """`WIDE` int8 from a place of an array on, as floats."""
    source = addresses.at(context, builder, kind, array, place)
    return builder.sitofp(_load(builder, source, ir.VectorType(_BYTE, WIDE)), _WIDE_FLOATS)


def add_scaled(builder: Any, total: Any, address: Any, factors: Any) -> None:
    """Add a float at an address, times each of `WIDE` factors, to a variable."""
    scalar = builder.load(builder.bitcast(address, ir.FloatType().as_pointer()))
    scales = builder.insert_element(ir.Constant(_WIDE_FLOATS, ir.Undefined), scalar, _INT32(0))
    scales = builder.shuffle_vector(scales, scales, _lanes([0] * WIDE))
    name = f"llvm.fmuladd.v{WIDE}f32"
    operands = [scales, factors, builder.load(total)]
    builder.store(_call(builder, name, _WIDE_FLOATS, operands), total)


def combine_columns(
    builder: Any, kind: Any, address: Any, count: int, products: Any, scale: Any
) -> Any:
    """Columns of int16 or floats from an address, times eight products, added up and scaled.

    There are `count` columns of as many. Of eight sums, the first `count` mean something.
    """
    weights = builder.fmul(builder.sitofp(products, _FLOATS), _filled(builder, scale))
    total = ir.Constant(_FLOATS, None)
    for column in range(count):
        place = INT64(count * column * kind.bitwidth // 8)
        factors = _load_as_floats(builder, kind, builder.gep(address, [place]))
        weight = _some(builder, weights, [column] * _FLOATS.count)
        total = _call(builder, "llvm.fmuladd.v8f32", _FLOATS, [factors, weight, total])
    return total


def _load_as_floats(builder: Any, kind: Any, address: Any) -> Any:
    """Eight int16 or floats."""
    if kind.bitwidth == _SHORT.width:
        shorts = _load(builder, address, _EIGHT_SHORTS)
        return builder.sitofp(builder.sext(shorts, _SUMS), _FLOATS)
    return _load(builder, address, _FLOATS)


def _filled(builder: Any, scalar: Any) -> Any:
    """Eight times the same float."""
    first = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), scalar, _INT32(0))
    return _some(builder, first, [0] * _FLOATS.count)


# --- memory --------------------------------------------------------------------------


def floats(context: Any, builder: Any, kind: Any, array: Any, place: Sequence[Any]) -> Any:
    """Eight float32 from a place of an array on."""
    return _load(builder, addresses.at(context, builder, kind, array, place), _FLOATS)


def load_sums(builder: Any, address: Any) -> Any:
    """Eight int32."""
    return _load(builder, address, _SUMS)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    vector = builder.load(builder.bitcast(address, kind.as_pointer()))
    vector.align = 1
    return vector


def store(builder: Any, vector: Any, address: Any) -> None:
    """Store a vector at an address that need not be aligned."""
    builder.store(vector, builder.bitcast(address, vector.type.as_pointer())).align = 1


def store_first(builder: Any, vector: Any, count: int, address: Any) -> None:
    """Store the first `count` of eight values, four at the least, and nothing behind them."""
    pointer = builder.bitcast(address, vector.type.element.as_pointer())
    store(builder, _some(builder, vector, range(4)), address)
    for place in range(4, count):
        value = builder.extract_element(vector, _INT32(place))
        builder.store(value, builder.gep(pointer, [INT64(place)]))


def copy_numbers(builder: Any, numbers: Any, count: int, address: Any) -> None:
    """Copy `count` numbers of rows, four at the least, as int32; nothing behind them is read."""
    kind = ir.VectorType(numbers.type.pointee, 4)
    store(builder, builder.zext(_load(builder, numbers, kind), ir.VectorType(_INT32, 4)), address)
    target = builder.bitcast(address, _INT32.as_pointer())
    for place in range(4, count):
        value = builder.trunc(addresses.number(builder, numbers, place), _INT32)
        builder.store(value, builder.gep(target, [INT64(place)]))


def fetch(builder: Any, address: Any) -> None:
    """Ask for a cache line that will be read; no address is wrong."""
    pointer = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, _INT32, _INT32, _INT32])
    function = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
    to_read, keep, data = _INT32(0), _INT32(3), _INT32(1)
    builder.call(function, [address, to_read, keep, data])


# --- words of llvmlite ---------------------------------------------------------------


def _has(context: Any, *features: str) -> bool:
    """Whether the machine that is compiled for has one of these features."""
    _, name, listed = context.codegen().magic_tuple()
    found = {*listed.split(","), *_IMPLIED.get(name, ())}
    return any(f"+{feature}" in found for feature in features)


# What a level of CPUs has without saying so; images are compiled for one, see the Dockerfile.
_IMPLIED = {"x86-64-v3": ("+avx2",), "x86-64-v4": ("+avx2",)}


def _call(builder: Any, name: str, kind: Any, operands: list[Any]) -> Any:
    signature = ir.FunctionType(kind, [operand.type for operand in operands])
    return builder.call(builder.module.declare_intrinsic(name, (), signature), operands)


def _some(builder: Any, vector: Any, places: Iterable[int]) -> Any:
    return builder.shuffle_vector(vector, vector, _lanes(places))


def _lanes(places: Iterable[int]) -> Any:
    numbers = list(places)
    return ir.Constant(ir.VectorType(_INT32, len(numbers)), numbers)
