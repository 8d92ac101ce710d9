"""Array types, and the one convention that keeps kernels from compiling twice.

numba compiles a kernel once per combination of argument types, and a read-only
array is another type than a writable one. Tensors of a bundle are read-only
because they are memory-mapped, so every input of a kernel is made read-only.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "CACHE_LINE",
    "AtomIds",
    "BoolArray",
    "Directions",
    "Factors",
    "FixedRows",
    "Float32Array",
    "Float64Array",
    "Int8Array",
    "Int32Array",
    "Int64Array",
    "IntpArray",
    "Scalar",
    "Tensors",
    "UInt8Array",
    "UInt32Array",
    "UInt64Array",
    "aligned_empty",
    "frozen",
]

BoolArray = npt.NDArray[np.bool_]
Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
IntpArray = npt.NDArray[np.intp]
UInt8Array = npt.NDArray[np.uint8]
UInt32Array = npt.NDArray[np.uint32]
UInt64Array = npt.NDArray[np.uint64]

# Rows of a model in fixed point, and directions of descriptors: narrow or wide.
FixedRows = npt.NDArray[np.int8 | np.int16]
Directions = npt.NDArray[np.uint8 | np.int16]

# What coding reads of leaves, see `kernels/coding.py`: narrow or wide.
Factors = npt.NDArray[np.int16 | np.float32]
AtomIds = npt.NDArray[np.uint16 | np.int32]

# What a bundle stores, by name.
Tensors = Mapping[str, npt.NDArray[Any]]

# Bytes that the processor fetches at a time.
CACHE_LINE = 64

Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """A read-only, C-contiguous view of `array`, copied only if it is not contiguous."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def aligned_empty(shape: tuple[int, ...], dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """An array whose first value, and so every row of 64 bytes, begins a cache line.

    And every row of 128 a pair of lines, which many processors fetch together.
    """
    size, pair = math.prod(shape) * np.dtype(dtype).itemsize, 2 * CACHE_LINE
    memory = np.empty(size + pair, np.uint8)
    begin = -memory.ctypes.data % pair
    return memory[begin : begin + size].view(dtype).reshape(shape)
