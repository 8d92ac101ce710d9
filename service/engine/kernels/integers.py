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
    AtomIds,
    Directions,
    FixedRows,
    Float32Array,
    Int32Array,
    UInt32Array,
    aligned_empty,
)
from service.engine.compiling import part
from service.engine.kernels import addresses, vectors
from service.engine.kernels import instructions as machine

__all__ = [
    "BATCH",
    "LANES",
    "RUN",
    "Index",
    "Scratch",
    "add_dots",
    "check_kinds",
    "dot_atoms",
    "end_batch",
    "go_down",
    "new_scratch",
    "prefetch",
    "prefetch_lanes",
    "round_run",
    "step_down",
    "step_from_root",
]

LANES = addresses.LANES
# How many dot products are computed together.
BATCH = 8
# How many values are rounded together.
RUN = 32

Index = np.uint64 | int

_BATCH, _ONE = np.uint64(BATCH), np.uint64(1)


class Scratch(NamedTuple):
    """Memory that a kernel writes while it works on some descriptors.

    Pairs of rows of two arrays, their products, and a factor for each pair; and what the products
    of one descriptor with its atoms are in floats.
    """

    rows: UInt32Array
    others: UInt32Array
    products: Int32Array
    factors: Float32Array
    correlations: Float32Array


def new_scratch(count: int, nonzeros: int = 0) -> Scratch:
    """Room for so many pairs, in whole batches, and as many atoms.

    One piece of memory, because five take three times as long as one to be made.
    """
    size = max(count, nonzeros)
    memory = aligned_empty((5, size + -size % BATCH), np.uint32)
    integers, floats = memory.view(np.int32), memory.view(np.float32)
    return Scratch(memory[0], memory[1], integers[2], floats[3], floats[4])


@part
def end_batch(scratch: Scratch, count: Index) -> None:
    """Let what follows the first `count` pairs, in the last batch, name rows that exist."""
    for i in range(np.uint64(count), (np.uint64(count) + _BATCH - _ONE) // _BATCH * _BATCH):
        scratch.rows[i] = 0
        scratch.others[i] = 0


def _add_dots(_: Any, a: Any, b: Any, scratch: Any, first: Any, column: Any) -> Any:
    """Σ a[rows[i], k]·b[others[i], k] over `LANES` columns k, for the `BATCH` pairs from `first`.

    It is added to products[i], or put there for the first column. Values of a are from 0 to 127
    and those of b from -127 to 127, both bytes; or both are int16 rows of lengths up to 2**15.
    So no sum overflows its 32 bits, nor a sum of two products of bytes its 16. Indices are not
    checked.
    """
    check_kinds(a, b)
    signature = types.void(a, b, scratch, types.uint64, types.uint64)
    del first, column

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (a_kind, b_kind, kinds, *_), (a, b, scratch, first, column) = signature.args, args
        rows, others, products = (
            _field(context, builder, kinds, scratch, name, first)
            for name in ("rows", "others", "products")
        )
        sums = []
        for i in range(BATCH):
            row = _chunk(context, builder, a_kind, a, addresses.number(builder, rows, i), column)
            other = _chunk(
                context, builder, b_kind, b, addresses.number(builder, others, i), column
            )
            sums.append(machine.multiply(context, builder, a_kind.dtype, [row, other]))
        _add_sums(builder, sums, column, products)
        return context.get_dummy_value()

    return signature, generate


def _dot_atoms(
    _: Any,
    a: Any,
    row: Any,
    b: Any,
    table: Any,
    leaf: Any,
    first: Any,
    count: Any,
    column: Any,
    place: Any,
    scratch: Any,
) -> Any:
    """The same for one row of a and the rows of b that table[leaf] names.

    Its numbers from `first` on, `count` of them, a constant up to `BATCH`. As many products are
    filled, from `place` on, as there are in a batch.
    """
    check_kinds(a, b)
    long = types.uint64
    signature = types.void(a, long, b, table, long, long, count, long, long, scratch)
    del row, leaf, first, column, place

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a_kind, _, b_kind, table_kind, *_, count, _, _, kinds = signature.args
        a, row, b, table, leaf, first, _, column, place, scratch = args
        here = _chunk(context, builder, a_kind, a, row, column)
        numbers = addresses.numbers(context, builder, table_kind, table, leaf, first)
        sums = [vectors.NOTHING] * BATCH
        for i in range(count.literal_value):
            atom = _chunk(
                context, builder, b_kind, b, addresses.number(builder, numbers, i), column
            )
            sums[i] = machine.multiply(context, builder, a_kind.dtype, [here, atom])
        _add_sums(
            builder, sums, column, _field(context, builder, kinds, scratch, "products", place)
        )
        return context.get_dummy_value()

    return signature, generate


def check_kinds(a: Any, b: Any) -> None:
    """Rows that are multiplied are both narrow or both wide."""
    if a.dtype.bitwidth != b.dtype.bitwidth:
        raise TypingError(
            f"rows of {a.dtype} times rows of {b.dtype}, expected both narrow or wide"
        )


def _field(context: Any, builder: Any, kinds: Any, scratch: Any, name: str, first: Any) -> Any:
    """Address of a value of one of the arrays of a `Scratch`."""
    place = Scratch._fields.index(name)
    array = builder.extract_value(scratch, place)
    return addresses.item(context, builder, kinds.types[place], array, first)


def _chunk(context: Any, builder: Any, kind: Any, rows: Any, row: Any, column: Any) -> Any:
    """Address of the values of a row from a column on."""
    offset = builder.mul(column, addresses.INT64(kind.dtype.bitwidth // 8))
    return builder.gep(addresses.row(context, builder, kind, rows, row), [offset])


def _add_sums(builder: Any, sums: list[Any], column: Any, products: Any) -> None:
    """Add the sum of each vector to a batch of products, or put it there for the first column."""
    is_first = builder.icmp_unsigned("==", column, addresses.INT64(0))
    before = builder.select(is_first, vectors.NOTHING, vectors.load_sums(builder, products))
    vectors.store(builder, builder.add(before, machine.sum_each(builder, sums)), products)


def _step_down(_: Any, a: Any, first_row: Any, b: Any, cuts: Any, scratch: Any, first: Any) -> Any:
    """`add_dots` and `go_down` in one, for `BATCH` rows of a that follow one another.

    Pair i is row `first_row` + i of a, which has `LANES` columns, and its node. Products do not
    leave their registers, and numbers of rows are not read: a walk took a sixth less time.
    """
    del first_row, first
    return _step(a, b, cuts, scratch, addresses.number)


def _step_from_root(
    _: Any, a: Any, first_row: Any, b: Any, cuts: Any, scratch: Any, first: Any
) -> Any:
    """The same for pairs whose nodes are all the first, whose vector then stays in registers."""
    del first_row, first
    return _step(a, b, cuts, scratch, lambda *_: addresses.INT64(0))


def _step(a: Any, b: Any, cuts: Any, scratch: Any, node_of: Callable[[Any, Any, int], Any]) -> Any:
    check_kinds(a, b)
    signature = types.void(a, types.uint64, b, cuts, scratch, types.uint64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a_kind, _, b_kind, kind, kinds, _ = signature.args
        a, first_row, b, cuts, scratch, first = args
        others = _field(context, builder, kinds, scratch, "others", first)
        nodes = [node_of(builder, others, i) for i in range(BATCH)]
        row = addresses.row(context, builder, a_kind, a, builder.add(first_row, first))
        size, sums = LANES * a_kind.dtype.bitwidth // 8, []
        for i, node in enumerate(nodes):
            here = builder.gep(row, [addresses.INT64(i * size)])
            vector = addresses.row(context, builder, b_kind, b, node)
            sums.append(machine.multiply(context, builder, a_kind.dtype, [here, vector]))
        own_cuts = [addresses.item(context, builder, kind, cuts, node) for node in nodes]
        factors = _field(context, builder, kinds, scratch, "factors", first)
        products = machine.sum_each(builder, sums)
        children = machine.children(builder, others, products, own_cuts, factors)
        vectors.store(builder, children, others)
        return context.get_dummy_value()

    return signature, generate


def _go_down(_: Any, cuts: Any, scratch: Any, first: Any) -> Any:
    """Let `others`, numbers of nodes, become their children, for the `BATCH` pairs from `first`.

    That is the right one where the product of the pair exceeds the node's cut times its factor.
    Decided for all at once: one after the other, a walk took a tenth longer in a probe in C.
    """
    signature = types.void(cuts, scratch, types.uint64)
    del first

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (kind, kinds, _), (cuts, scratch, first) = signature.args, args
        others, products, factors = (
            _field(context, builder, kinds, scratch, name, first)
            for name in ("others", "products", "factors")
        )
        own_cuts = [
            addresses.item(context, builder, kind, cuts, addresses.number(builder, others, i))
            for i in range(BATCH)
        ]
        sums = vectors.load_sums(builder, products)
        vectors.store(builder, machine.children(builder, others, sums, own_cuts, factors), others)
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
        source = addresses.item(context, builder, signature.args[0], flat, start)
        target = addresses.row(context, builder, signature.args[3], rows, row)
        packed = machine.round_to_bytes(context, builder, source, scale)
        vectors.store(builder, packed, builder.gep(target, [column]))
        return context.get_dummy_value()

    return signature, generate


def _prefetch(_: Any, array: Any, row: Any, offset: Any) -> Any:
    """Ask for the cache line `offset` bytes into a row; any row number is harmless."""
    signature = types.void(array, types.uint64, types.uint64)
    del row, offset

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = addresses.row(context, builder, signature.args[0], args[0], args[1])
        vectors.fetch(builder, builder.gep(row, [args[2]]))
        return context.get_dummy_value()

    return signature, generate


def _prefetch_lanes(_: Any, array: Any, row: Any) -> Any:
    """Ask for the first `LANES` values of a row; any row number is harmless."""
    signature = types.void(array, types.uint64)
    del row

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = addresses.row(context, builder, signature.args[0], args[0], args[1])
        size = LANES * signature.args[0].dtype.bitwidth // 8
        for offset in range(0, size, CACHE_LINE):
            vectors.fetch(builder, builder.gep(row, [addresses.INT64(offset)]))
        return context.get_dummy_value()

    return signature, generate


# What kernels call has other arguments than what generates it.
add_dots = cast(
    "Callable[[Directions, FixedRows | Directions, Scratch, Index, Index], None]",
    intrinsic(_add_dots),
)
dot_atoms = cast(
    "Callable[[Directions, Index, FixedRows, AtomIds, Index, Index, int, Index, Index,"
    " Scratch], None]",
    # A constant count, so that its loop is gone from the machine code.
    intrinsic(prefer_literal=True)(_dot_atoms),
)
go_down = cast("Callable[[Float32Array, Scratch, Index], None]", intrinsic(_go_down))
step_down = cast(
    "Callable[[Directions, Index, FixedRows, Float32Array, Scratch, Index], None]",
    intrinsic(_step_down),
)
step_from_root = cast(
    "Callable[[Directions, Index, FixedRows, Float32Array, Scratch, Index], None]",
    intrinsic(_step_from_root),
)
round_run = cast(
    "Callable[[Float32Array, Index, np.float32, Directions, Index, Index], None]",
    intrinsic(_round_run),
)
prefetch = cast("Callable[[npt.NDArray[Any], Index, Index], None]", intrinsic(_prefetch))
prefetch_lanes = cast("Callable[[FixedRows, Index], None]", intrinsic(_prefetch_lanes))
