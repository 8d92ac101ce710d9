"""What numba cannot spell: counters that threads share, the time, and memory of a kernel's own.

Counters are read and written as atoms of memory are, so that a thread which sees a count also
sees all that was written before it. The functions called are those of the C library.
"""

import time
from collections.abc import Callable
from typing import Any, cast

from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from service.engine.arrays import Float32Array, Int64Array, UInt8Array
from service.engine.kernels import addresses

__all__ = [
    "add_to",
    "free_floats",
    "let_others_run",
    "nanoseconds",
    "own_floats",
    "peek",
    "read",
    "replace",
    "write",
]

# Without types, as llvmlite is, which writes the machine code.
codegen: Any = cgutils
ir: Any = codegen.ir
fill_array: Any = populate_array

_INT32, _INT64, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
_ANY = ir.IntType(8).as_pointer()
_WORD, _FLOAT_BYTES = 8, 4

_NAP_MICROSECONDS = 50


# --- counters ------------------------------------------------------------------------


def _add_to(_: Any, counters: Any, place: Any, number: Any) -> Any:
    """Add a number to one of some counters; what it was before, no two threads being told alike."""
    signature = types.int64(counters, types.int64, types.int64)
    del place, number

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = addresses.item(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", address, args[2], "acq_rel")

    return signature, generate


def _read(_: Any, counters: Any, place: Any) -> Any:
    """What one of some counters is."""
    signature = types.int64(counters, types.int64)
    del place

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = addresses.item(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(address, "acquire", _WORD)

    return signature, generate


def _replace(_: Any, counters: Any, place: Any, before: Any, number: Any) -> Any:
    """Let one of some counters be a number if it is what it was before; whether it was."""
    signature = types.boolean(counters, types.int64, types.int64, types.int64)
    del place, before, number

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        counters, place, before, number = args
        address = addresses.item(context, builder, signature.args[0], counters, place)
        found = builder.cmpxchg(address, before, number, "acq_rel", "acquire")
        return builder.extract_value(found, 1)

    return signature, generate


def _peek(_: Any, bytes_: Any, row: Any, column: Any) -> Any:
    """One of some bytes (rows, columns) that another thread may be writing; it is read anew."""
    signature = types.uint8(bytes_, types.int64, types.int64)
    del row, column

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = addresses.at(context, builder, signature.args[0], args[0], args[1:])
        return builder.load_atomic(address, "acquire", 1)

    return signature, generate


def _write(_: Any, counters: Any, place: Any, number: Any) -> Any:
    """Let one of some counters be a number."""
    signature = types.void(counters, types.int64, types.int64)
    del place, number

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = addresses.item(context, builder, signature.args[0], args[0], args[1])
        builder.store_atomic(args[2], address, "release", _WORD)
        return context.get_dummy_value()

    return signature, generate


# --- the C library -------------------------------------------------------------------


def _call(builder: Any, name: str, result: Any, operands: list[Any]) -> Any:
    kind = ir.FunctionType(result, [operand.type for operand in operands])
    function = codegen.get_or_insert_function(builder.module, kind, name)
    if name == "malloc":
        function.return_value.add_attribute("noalias")
    return builder.call(function, operands)


def _let_others_run(_: Any, sleeps: Any) -> Any:
    """Give the core to another thread that waits for one, and go on; or sleep a little first."""
    del sleeps

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        with builder.if_else(args[0]) as (then, otherwise):
            with then:
                _call(builder, "usleep", _INT32, [_INT32(_NAP_MICROSECONDS)])
            with otherwise:
                _call(builder, "sched_yield", _INT32, [])
        return context.get_dummy_value()

    return types.void(types.boolean), generate


def _nanoseconds(_: Any) -> Any:
    """Time since an unknown moment, that of `time.monotonic_ns`."""

    def generate(_: Any, builder: Any, *__: Any) -> Any:
        pair = codegen.alloca_once(builder, _INT64, 2)
        _call(builder, "clock_gettime", _INT32, [_INT32(time.CLOCK_MONOTONIC), pair])
        seconds, rest = (builder.load(builder.gep(pair, [_INT64(place)])) for place in (0, 1))
        return builder.add(builder.mul(seconds, _INT64(10**9)), rest)

    return types.int64(), generate


def _own_floats(_: Any, rows: Any, width: Any) -> Any:
    """An array (rows, width) that the kernel has to free; without memory for it, (0, width).

    LLVM knows that nothing else is there, so that no loop has to ask whether it overlaps what is
    read: with arrays of the caller's, a feature map took a quarter longer.
    """
    kind = types.Array(types.float32, 2, "C")
    del rows, width

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows, width = args
        pitch = builder.mul(width, _INT64(_FLOAT_BYTES))
        memory = _call(builder, "malloc", _ANY, [builder.mul(rows, pitch)])
        is_none = codegen.is_null(builder, memory)
        array = context.make_array(signature.return_type)(context, builder)
        fill_array(
            array,
            data=builder.bitcast(memory, _FLOAT.as_pointer()),
            shape=[builder.select(is_none, _INT64(0), rows), width],
            strides=[pitch, _INT64(_FLOAT_BYTES)],
            itemsize=_INT64(_FLOAT_BYTES),
            meminfo=None,
        )
        return array._getvalue()  # noqa: SLF001

    return kind(types.int64, types.int64), generate


def _free_floats(_: Any, array: Any) -> Any:
    """Free an array of `own_floats`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        fields = context.make_array(signature.args[0])(context, builder, args[0])
        _call(builder, "free", ir.VoidType(), [builder.bitcast(fields.data, _ANY)])
        return context.get_dummy_value()

    return types.void(array), generate


# What kernels call has other arguments than what generates it.
add_to = cast("Callable[[Int64Array, int, int], int]", intrinsic(_add_to))
read = cast("Callable[[Int64Array, int], int]", intrinsic(_read))
peek = cast("Callable[[UInt8Array, int, int], int]", intrinsic(_peek))
replace = cast("Callable[[Int64Array, int, int, int], bool]", intrinsic(_replace))
write = cast("Callable[[Int64Array, int, int], None]", intrinsic(_write))
let_others_run = cast("Callable[[bool], None]", intrinsic(_let_others_run))
nanoseconds = cast("Callable[[], int]", intrinsic(_nanoseconds))
own_floats = cast("Callable[[int, int], Float32Array]", intrinsic(_own_floats))
free_floats = cast("Callable[[Float32Array], None]", intrinsic(_free_floats))
