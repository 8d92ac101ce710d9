"""What numba cannot spell: products of floats with bytes, whose sums stay in registers.

With sums in memory between the steps, and bytes made floats beforehand, projecting the residuals
of an image took 1.4 times as long.
"""

from collections.abc import Callable
from typing import Any, cast

from numba.core import cgutils, types
from numba.extending import intrinsic

from service.engine.arrays import Float32Array, Int8Array
from service.engine.kernels import addresses, vectors
from service.engine.kernels import instructions as machine
from service.engine.kernels.integers import Index

__all__ = ["COMPONENTS", "ROWS", "project_rows"]

# Rows that are projected together, and how many components of them.
ROWS = 4
COMPONENTS = machine.WIDE


def _project_rows(
    _: Any, rows: Any, first: Any, projections: Any, node: Any, component: Any, parts: Any
) -> Any:
    """Σ rows[first + i, k]·projections[node, k, c] into parts[i, c], for `ROWS` rows i.

    That is for the `COMPONENTS` components c from `component` on. rows (≥ first + ROWS, d);
    projections (nodes, d, ≥ component + COMPONENTS); parts (ROWS, …). Indices are not checked.
    """
    long = types.uint64
    signature = types.void(rows, long, projections, long, long, parts)
    del first, node, component

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind, _, bytes_kind, _, _, out_kind = signature.args
        rows, first, projections, node, component, parts = args
        sums = [machine.variable(builder) for _ in range(ROWS)]
        width = addresses.length(context, builder, kind, rows, 1)
        with cgutils.for_range(builder, width) as loop:
            place = [node, loop.index, component]
            factors = machine.wide_from_bytes(context, builder, bytes_kind, projections, place)
            for i, total in enumerate(sums):
                row = builder.add(first, addresses.INT64(i))
                value = addresses.at(context, builder, kind, rows, [row, loop.index])
                machine.add_scaled(builder, total, value, factors)
        for i, total in enumerate(sums):
            place = [addresses.INT64(i), component]
            target = addresses.at(context, builder, out_kind, parts, place)
            vectors.store(builder, builder.load(total), target)
        return context.get_dummy_value()

    return signature, generate


# What kernels call has other arguments than what generates it.
project_rows = cast(
    "Callable[[Float32Array, Index, Int8Array, Index, Index, Float32Array], None]",
    intrinsic(_project_rows),
)
