"""Array types, and the one convention that keeps kernels from compiling twice.

numba compiles a kernel once per combination of argument types, and a read-only
array is another type than a writable one. Tensors of a bundle are read-only
because they are memory-mapped, so every input of a kernel is made read-only.
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Float32Array", "Float64Array", "Int32Array", "UInt8Array", "frozen"]

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
UInt8Array = npt.NDArray[np.uint8]

Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """A read-only, C-contiguous view of `array`, copied only if it is not contiguous."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
