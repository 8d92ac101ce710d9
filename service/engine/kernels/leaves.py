"""What numba cannot spell: the code of one descriptor by the atoms of its leaf, in one piece.

By parts, the products of a descriptor and its atoms went through memory, and coding took a fifth
longer. The instructions are in `instructions.py`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from service.engine.arrays import (
    CACHE_LINE,
    AtomIds,
    Directions,
    Factors,
    FixedRows,
    Float32Array,
    Int32Array,
)
from service.engine.kernels import addresses, vectors
from service.engine.kernels import instructions as machine
from service.engine.kernels.integers import BATCH, LANES, Index, check_kinds

__all__ = ["LeafTables", "code_by_leaf", "fetch_atoms"]


class LeafTables(NamedTuple):
    """What coding reads of a leaf: one row, in whole cache lines, in three views of its memory.

    factors (leaves, w) has, column by column, the m² of the inverse Gram matrix times the scale of
    the column's atom; atom_ids (leaves, w) has the numbers of the m atoms after them; and scales
    has what the factors are to be multiplied with after these. Narrow factors are 16-bit integers,
    as are the numbers of atoms, so that five atoms take one cache line: rounding moves the values
    of a code by a hundredth of what that of descriptors does. Wide factors are floats.
    """

    factors: Factors
    atom_ids: AtomIds
    scales: Float32Array


class _Row(NamedTuple):
    """Addresses of what there is in the row of one leaf, and the kind of its factors."""

    kind: Any
    factors: Any
    atom_ids: Any
    scale: Any


def _row(context: Any, builder: Any, kinds: Any, tables: Any, leaf: Any, m: int) -> _Row:
    """The row of a leaf of m atoms."""
    kind = kinds.types[0]
    factors = addresses.row(context, builder, kind, builder.extract_value(tables, 0), leaf)
    bits = kind.dtype.bitwidth
    atom_ids = addresses.after(builder, factors, m * m * bits // 8, bits)
    scale = addresses.after(builder, factors, (m * m + m) * bits // 8, 32)
    return _Row(kind.dtype, factors, atom_ids, scale)


def _code_by_leaf(
    _: Any,
    directions: Any,
    row: Any,
    step: Any,
    tables: Any,
    leaf: Any,
    m: Any,
    atoms: Any,
    atom_ids: Any,
    values: Any,
    i: Any,
) -> Any:
    """Fill atom_ids[i] and values[i] for a direction times `step` and the m atoms of a leaf.

    m is a constant from 4 to `BATCH`. Directions and atoms have `LANES` columns. Indices are not
    checked.
    """
    check_kinds(directions, atoms)
    long = types.uint64
    signature = types.void(
        directions, long, types.float32, tables, long, m, atoms, atom_ids, values, long
    )
    del row, step, leaf, i

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        direction_kind, _, _, kinds, _, m, atom_kind, ids_kind, values_kind, _ = signature.args
        directions, row, step, tables, leaf, _, atoms, atom_ids, values, i = args
        count = m.literal_value
        own = _row(context, builder, kinds, tables, leaf, count)
        here = addresses.row(context, builder, direction_kind, directions, row)
        sums = [vectors.NOTHING] * BATCH
        for k in range(count):
            number = addresses.number(builder, own.atom_ids, k)
            atom = addresses.row(context, builder, atom_kind, atoms, number)
            sums[k] = machine.multiply(context, builder, atom_kind.dtype, [here, atom])
        products = machine.sum_each(builder, sums)
        scale = builder.fmul(step, builder.bitcast(builder.load(own.scale), vectors.FLOAT))
        solved = machine.combine_columns(builder, own.kind, own.factors, count, products, scale)
        place = [i, addresses.INT64(0)]
        target = addresses.at(context, builder, values_kind, values, place)
        vectors.store_first(builder, solved, count, target)
        target = addresses.at(context, builder, ids_kind, atom_ids, place)
        vectors.copy_numbers(builder, own.atom_ids, count, target)
        return context.get_dummy_value()

    return signature, generate


def _fetch_atoms(_: Any, tables: Any, leaf: Any, m: Any, atoms: Any) -> Any:
    """Ask for the first `LANES` values of the m atoms of a leaf, m being a constant."""
    signature = types.void(tables, types.uint64, m, atoms)
    del leaf

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (kinds, _, m, kind), (tables, leaf, _, atoms) = signature.args, args
        own = _row(context, builder, kinds, tables, leaf, m.literal_value)
        for k in range(m.literal_value):
            number = addresses.number(builder, own.atom_ids, k)
            atom = addresses.row(context, builder, kind, atoms, number)
            for offset in range(0, LANES * kind.dtype.bitwidth // 8, CACHE_LINE):
                vectors.fetch(builder, builder.gep(atom, [addresses.INT64(offset)]))
        return context.get_dummy_value()

    return signature, generate


# What kernels call has other arguments than what generates it. A constant count, so that its loop
# is gone from the machine code.
code_by_leaf = cast(
    "Callable[[Directions, Index, np.float32, LeafTables, Index, int, FixedRows, Int32Array,"
    " Float32Array, Index], None]",
    intrinsic(prefer_literal=True)(_code_by_leaf),
)
fetch_atoms = cast(
    "Callable[[LeafTables, Index, int, FixedRows], None]",
    intrinsic(prefer_literal=True)(_fetch_atoms),
)
