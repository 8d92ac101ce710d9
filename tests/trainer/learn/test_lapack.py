"""Cholesky routines against NumPy, and that they let other threads run."""

import threading
import time

import numpy as np
import pytest

from service.engine.arrays import Float64Array
from trainer.learn.lapack import positive_inverse, positive_solve

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
    """SciPy's wrapper kept the GIL, so that two folds took as long as two."""
    solving = threading.Thread(target=positive_inverse, args=(_positive(1200),))
    solving.start()
    turns = 0
    while solving.is_alive():
        turns += 1
        time.sleep(0.001)
    assert turns > 5
