"""Cholesky routines against NumPy, and that they let other threads run."""

import ctypes
from typing import Any

import numpy as np
import pytest

from service.engine.arrays import Float64Array
from trainer.learn.lapack import _routine, positive_inverse, positive_solve

# What ctypes marks functions with that are called with the GIL.
_FUNCFLAG_PYTHONAPI = 4

_RNG = np.random.default_rng(0)


def _positive(n: int) -> Float64Array:
    root = _RNG.normal(size=(n, n))
    return np.asfortranarray(root @ root.T + n * np.eye(n))


@pytest.mark.parametrize("n", [0, 1, 17])
@pytest.mark.parametrize("columns", [(), (1,), (5,)])
def test_solution_is_numpys(n: int, columns: tuple[int, ...]) -> None:
    matrix, right = _positive(n), np.asfortranarray(_RNG.normal(size=(n, *columns)))
    expected = np.linalg.inv(matrix) @ right
    np.testing.assert_allclose(positive_solve(matrix, right), expected, atol=1e-9)


@pytest.mark.parametrize("n", [1, 17])
def test_inverse_is_numpys(n: int) -> None:
    matrix = _positive(n)
    expected = np.tril(np.linalg.inv(matrix))
    np.testing.assert_allclose(np.tril(positive_inverse(matrix)), expected, atol=1e-9)


def test_what_is_not_positive_is_rejected() -> None:
    with pytest.raises(ValueError, match="negative eigenvalues"):
        positive_solve(np.asfortranarray(-np.eye(3)), np.ones(3))


def test_rows_in_the_order_of_c_are_rejected() -> None:
    with pytest.raises(ValueError, match="expected Fortran's doubles"):
        positive_solve(_positive(3), np.ones((3, 2)))


def test_other_threads_run_while_one_solves() -> None:
    """A routine is called as ctypes calls one of C, not as one of Python's, which keeps the GIL."""
    routine: Any = _routine("dpotrf", 4)
    kept = getattr(type(ctypes.pythonapi.Py_IncRef), "_flags_", 0) & _FUNCFLAG_PYTHONAPI
    assert kept  # as seen on a function that does keep it
    assert not type(routine)._flags_ & _FUNCFLAG_PYTHONAPI
