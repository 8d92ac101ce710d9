"""LAPACK's Cholesky routines, called without the GIL.

SciPy's own wrappers keep it: threads that solve side by side took turns, and a worker of a cluster
sent nothing while it solved. These are the same routines, by the addresses that SciPy has for
Cython.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from service.engine.arrays import Float64Array

__all__ = ["positive_inverse", "positive_solve"]


def positive_solve(matrix: Float64Array, right: Float64Array) -> Float64Array:
    """The solution, in place of `right` (n,) or (n, k); `matrix` (n, n) is overwritten too.

    Both are in Fortran's order. Of the matrix, the part on the diagonal and below is read.
    """
    columns = 1 if right.ndim == 1 else right.shape[1]
    n, step = len(matrix), max(len(matrix), 1)
    _call("dposv", b"L", n, columns, matrix, step, right, step)
    return right


def positive_inverse(matrix: Float64Array) -> Float64Array:
    """The inverse (n, n), on the diagonal and below, in place of a matrix in Fortran's order."""
    n = len(matrix)
    _call("dpotrf", b"L", n, matrix, n)
    _call("dpotri", b"L", n, matrix, n)
    return matrix


def _call(name: str, *arguments: bytes | int | Float64Array) -> None:
    """Call a routine; all that Fortran gets is where a value lies."""
    failed = ctypes.c_int(0)
    _routine(name, len(arguments))(*map(_pointer, arguments), ctypes.byref(failed))
    if failed.value:
        raise ValueError("the Gram matrix has negative eigenvalues, expected inner products")


def _pointer(argument: bytes | int | Float64Array) -> Any:
    if isinstance(argument, bytes):
        return ctypes.byref(ctypes.c_char(argument))
    if isinstance(argument, int):
        return ctypes.byref(ctypes.c_int(argument))
    if not (argument.flags.f_contiguous and argument.dtype == np.float64):
        raise ValueError("an array in another order or of another type, expected Fortran's doubles")
    return argument.ctypes.data_as(ctypes.c_void_p)


@cache
def _routine(name: str, count: int) -> Callable[..., None]:
    from scipy.linalg import cython_lapack  # noqa: PLC0415

    capsule = cython_lapack.__pyx_capi__[name]
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
        ("PyCapsule_GetName", ctypes.pythonapi)
    )
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    address = address_of(capsule, name_of(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (count + 1))(address)
