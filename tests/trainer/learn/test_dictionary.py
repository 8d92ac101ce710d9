"""The dictionary update against dense least squares, and atoms nobody uses."""

import numpy as np
import pytest

from service.engine.arrays import Float32Array, frozen
from service.engine.codes import Codes
from tests import reference
from trainer.errors import DataError
from trainer.learn.dictionary import (
    first_dictionary,
    residual_energies,
    update_by_least_squares,
)
from trainer.learn.kernels.dictionary import subtract_reconstructions
from trainer.learn.points import LocalPoints, replace_unused_atoms
from trainer.learn.somp import group_by_leaf


def _points(n: int, width: int = 12, seed: int = 0) -> Float32Array:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def _codes(n: int, n_atoms: int, nonzeros: int, seed: int = 1) -> Codes:
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.choice(n_atoms, nonzeros, replace=False) for _ in range(n)])
    values = rng.normal(size=(n, nonzeros)).astype(np.float32)
    return Codes(np.zeros(n, np.int32), ids.astype(np.int32), values)


def test_update_points_where_dense_least_squares_points() -> None:
    x, codes = _points(400), _codes(400, 10, 3)
    updated = update_by_least_squares(x, codes, np.zeros((10, 12), np.float32))
    z = reference.dense_codes(codes.atom_ids, codes.values, 10)
    expected, *_ = np.linalg.lstsq(z, x.astype(np.float64))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(updated, expected, atol=1e-4)


def test_update_has_unit_atoms_and_keeps_unused_ones() -> None:
    x, codes = _points(100), _codes(100, 6, 2)
    before = _points(8, seed=5)
    updated = update_by_least_squares(x, codes, before)
    np.testing.assert_allclose(np.linalg.norm(updated[:6], axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(updated[6:], before[6:])


def test_update_is_finite_when_two_atoms_are_always_used_alike() -> None:
    x, codes = _points(50), _codes(50, 6, 2)
    codes.atom_ids[:] = [2, 3]
    codes.values[:, 1] = codes.values[:, 0]
    assert np.isfinite(update_by_least_squares(x, codes, _points(6))).all()


def test_residual_energies_are_those_of_the_dense_product() -> None:
    x, codes, w = _points(40), _codes(40, 10, 3), _points(10, seed=3)
    z = reference.dense_codes(codes.atom_ids, codes.values, 10)
    expected = ((x - z @ w) ** 2).sum(axis=1)
    np.testing.assert_allclose(residual_energies(x, codes, w), expected, rtol=1e-4)


@pytest.mark.parametrize("n", [1, 15, 16, 17])
def test_subtracted_reconstructions_are_those_of_the_dense_product(n: int) -> None:
    x, codes, w = _points(n), _codes(n, 10, 3), _points(10, seed=3)
    residuals = x.copy()
    subtract_reconstructions(frozen(codes.atom_ids), frozen(codes.values), frozen(w), residuals)
    z = reference.dense_codes(codes.atom_ids, codes.values, 10)
    np.testing.assert_allclose(residuals, x - z @ w, atol=1e-5)


def test_an_unused_atom_becomes_the_principal_component_that_the_worst_leaf_misses() -> None:
    rng = np.random.default_rng(0)
    basis = np.eye(12, dtype=np.float32)
    missed = (basis[5] * 0.6 + basis[6] * 0.8).astype(np.float32)
    good = rng.normal(size=(20, 2)) @ basis[:2]
    bad = rng.normal(size=(20, 2)) @ basis[:2] + rng.normal(size=(20, 1)) * 5 * missed
    x = np.concatenate([good, bad]).astype(np.float32)
    groups = group_by_leaf(x, np.repeat([0, 1], 20).astype(np.int32), 2)
    dictionary = basis[:4].copy()
    table = np.array([[0, 1], [0, 1]], np.int32)
    table[1, 1] = 2
    points = LocalPoints(groups)
    energies = points.residuals(table, dictionary).by_leaf
    replaced = replace_unused_atoms(points, table, dictionary, energies)
    assert abs(float(replaced[3] @ missed)) > 0.98
    np.testing.assert_array_equal(replaced[:3], dictionary[:3])


def test_a_leaf_without_residual_gives_no_new_atom() -> None:
    basis = np.eye(12, dtype=np.float32)
    groups = group_by_leaf(np.zeros((5, 12), np.float32), np.zeros(5, np.int32), 1)
    replaced = replace_unused_atoms(
        LocalPoints(groups), np.array([[0]], np.int32), basis[:3], np.zeros(1)
    )
    np.testing.assert_array_equal(replaced, basis[:3])


def test_first_dictionary_takes_different_descriptors_at_unit_norm() -> None:
    atoms = first_dictionary(_points(30), 30, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1, atol=1e-6)
    assert len(np.unique(atoms, axis=0)) == 30


def test_more_atoms_than_descriptors_are_refused_with_both_numbers() -> None:
    with pytest.raises(DataError, match="30 descriptors are fewer than the 31 atoms"):
        first_dictionary(_points(30), 31, np.random.default_rng(0))
