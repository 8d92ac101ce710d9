"""K-SVD against the textbook sweep by singular vectors, and its promise about the error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.arrays import Float32Array
from service.engine.codes import Codes
from tests import reference
from trainer.learn.dictionary import residual_energies, update_dictionary
from trainer.learn.ksvd import sweep_ksvd


def _unit(n: int, width: int, rng: np.random.Generator) -> Float32Array:
    rows = rng.normal(size=(n, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


def _codes(n: int, n_atoms: int, nonzeros: int, rng: np.random.Generator) -> Codes:
    ids = np.argsort(rng.random((n, n_atoms)), axis=1)[:, :nonzeros]
    values = rng.normal(size=(n, nonzeros))
    return Codes(np.zeros(n, np.int32), ids.astype(np.int32), values.astype(np.float32))


def _error(x: Float32Array, codes: Codes, dictionary: Float32Array) -> float:
    return float(residual_energies(x, codes, dictionary).sum(dtype=np.float64))


@pytest.mark.parametrize(("n", "n_atoms", "nonzeros"), [(60, 6, 2), (200, 9, 3), (7, 8, 1)])
def test_a_sweep_is_that_of_the_singular_vectors(n: int, n_atoms: int, nonzeros: int) -> None:
    rng = np.random.default_rng(n)
    # Widths that differ by a factor give singular values apart, so power iteration arrives.
    x = (rng.normal(size=(n, 10)) * 1.8 ** -np.arange(10)).astype(np.float32)
    codes, dictionary = _codes(n, n_atoms, nonzeros, rng), _unit(n_atoms, 10, rng)
    swept = sweep_ksvd(x, codes, dictionary, rounds=300)
    z = reference.dense_codes(codes.atom_ids, codes.values, n_atoms)
    users = reference.dense_codes(codes.atom_ids, np.ones_like(codes.values), n_atoms) > 0
    expected_z, expected_atoms = reference.ksvd_sweep(x, z, users, dictionary)
    cosines = np.einsum("kd,kd->k", swept.dictionary, expected_atoms)[users.any(axis=0)]
    np.testing.assert_allclose(np.abs(cosines), 1, atol=1e-3)
    found = reference.dense_codes(swept.codes.atom_ids, swept.codes.values, n_atoms)
    np.testing.assert_allclose(found @ swept.dictionary, expected_z @ expected_atoms, atol=1e-2)


@settings(max_examples=80)
@given(
    st.integers(0, 10_000),
    st.integers(1, 50),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(["random", "duplicates", "zeros", "zero codes"]),
)
def test_a_sweep_never_raises_the_error(
    seed: int, n: int, nonzeros: int, rounds: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    x, codes, dictionary = _unit(n, 7, rng), _codes(n, 6, nonzeros, rng), _unit(6, 7, rng)
    if kind == "duplicates":
        x[:] = x[0]
    if kind == "zeros":
        x[::2] = 0
    if kind == "zero codes":
        codes.values[::2] = 0
    swept = sweep_ksvd(x, codes, dictionary, rounds)
    before, after = _error(x, codes, dictionary), _error(x, swept.codes, swept.dictionary)
    assert after <= before * (1 + 1e-5) + 1e-6
    assert np.isfinite(swept.dictionary).all()
    np.testing.assert_array_equal(swept.codes.atom_ids, codes.atom_ids)


def test_used_atoms_end_at_unit_norm_and_unused_ones_stay() -> None:
    rng = np.random.default_rng(0)
    x, codes, dictionary = _unit(90, 7, rng), _codes(90, 6, 2, rng), _unit(8, 7, rng) * 3
    updated = update_dictionary("ksvd", x, codes, dictionary)
    np.testing.assert_allclose(np.linalg.norm(updated[:6], axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(updated[6:], dictionary[6:])


def test_inputs_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    x, codes, dictionary = _unit(20, 7, rng), _codes(20, 6, 2, rng), _unit(6, 7, rng)
    copies = x.copy(), codes.values.copy(), dictionary.copy()
    sweep_ksvd(x, codes, dictionary)
    for array, copy in zip((x, codes.values, dictionary), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_all_zero_descriptors_keep_the_dictionary_whichever_update() -> None:
    rng = np.random.default_rng(0)
    codes, dictionary = _codes(20, 6, 2, rng), _unit(6, 7, rng)
    codes.values[:] = 0
    x = np.zeros((20, 7), np.float32)
    np.testing.assert_array_equal(
        update_dictionary("least-squares", x, codes, dictionary), dictionary
    )
    np.testing.assert_allclose(
        update_dictionary("ksvd", x, codes, dictionary), dictionary, atol=1e-6
    )
