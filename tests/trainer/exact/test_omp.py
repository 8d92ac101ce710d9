"""OMP by SPAMS against a slow pursuit and scikit-learn, and dictionaries for it."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import orthogonal_mp

from service.engine import DescriptorError, EngineConfig, FeatureExtractor
from service.engine.arrays import Float32Array, Float64Array, Int32Array
from service.engine.blocks import CodesBlock
from service.engine.codes import Codes
from service.engine.coding import Coder
from service.engine.config import CodesConfig, ViewConfig
from service.engine.tree import Tree
from trainer.errors import ConfigError, TrainingError
from trainer.exact.omp import (
    KsvdSettings,
    OmpCoder,
    OmpExtractor,
    OnlineSettings,
    learn_by_ksvd,
    learn_online,
)
from trainer.learn.dictionary import first_dictionary

pytest.importorskip("spams", reason="the extra bench (spams-bin) is not installed")


def _unit(rows: Float64Array) -> Float32Array:
    unit: Float32Array = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _dictionary(n_atoms: int, width: int, seed: int = 0) -> Float32Array:
    return _unit(np.random.default_rng([seed, 1]).normal(size=(n_atoms, width)))


def _descriptors(n: int, width: int, seed: int = 0) -> Float32Array:
    return np.random.default_rng([seed, 2]).normal(size=(n, width)).astype(np.float32)


def _dense(codes: Codes, n_atoms: int) -> Float32Array:
    matrix = np.zeros((codes.values.shape[0], n_atoms), np.float32)
    np.put_along_axis(matrix, codes.atom_ids, codes.values, axis=1)
    return matrix


def _fit(x: Float64Array, atoms: Float64Array) -> tuple[Float64Array, float]:
    values = np.asarray(np.linalg.lstsq(atoms.T, x, rcond=None)[0], np.float64)
    return values, float(((x - values @ atoms) ** 2).sum())


def _pursue(descriptor: Float32Array, dictionary: Float32Array, nonzeros: int) -> Float64Array:
    """One code (K,): in each step the atom that leaves the smallest residual, by trying all."""
    x, atoms = descriptor.astype(np.float64), dictionary.astype(np.float64)
    chosen: list[int] = []
    for _ in range(nonzeros):
        left = [a for a in range(len(atoms)) if a not in chosen]
        chosen.append(min(left, key=lambda a: _fit(x, atoms[[*chosen, a]])[1]))
    code = np.zeros(len(atoms))
    code[chosen] = _fit(x, atoms[chosen])[0]
    return code


def _relative_error(x: Float32Array, codes: Float32Array, dictionary: Float32Array) -> float:
    return float(((x - codes @ dictionary) ** 2).sum() / (x**2).sum())


# Always the same examples: a tie within float32 is rare, but decides otherwise than float64.
@settings(max_examples=20)
@given(
    n_atoms=st.integers(8, 40),
    width=st.integers(6, 17),
    nonzeros=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_codes_are_those_of_a_slow_pursuit(
    n_atoms: int, width: int, nonzeros: int, seed: int
) -> None:
    dictionary, x = _dictionary(n_atoms, width, seed), _descriptors(6, width, seed)
    found = _dense(OmpCoder(dictionary, nonzeros).encode(x), n_atoms)
    expected = np.stack([_pursue(row, dictionary, nonzeros) for row in x])
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_codes_are_those_of_scikit_learn_where_both_pursuits_must_agree() -> None:
    orthonormal = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 20)))[0]
    x = _descriptors(50, 20)
    found = _dense(OmpCoder(orthonormal.astype(np.float32), 5).encode(x), 20)
    expected = orthogonal_mp(orthonormal.T, x.T.astype(np.float64), n_nonzero_coefs=5).T
    np.testing.assert_array_equal(found != 0, expected != 0)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_first_atom_is_that_of_scikit_learn() -> None:
    dictionary, x = _dictionary(64, 16), _descriptors(200, 16)
    found = _dense(OmpCoder(dictionary, 1).encode(x), 64)
    expected = orthogonal_mp(dictionary.T, x.T, n_nonzero_coefs=1).T
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_error_is_not_above_that_of_plain_omp() -> None:
    dictionary, x = _dictionary(256, 32), _descriptors(500, 32)
    found = _dense(OmpCoder(dictionary, 5).encode(x), 256)
    plain = orthogonal_mp(dictionary.T, x.T, n_nonzero_coefs=5).T
    assert _relative_error(x, found, dictionary) < _relative_error(x, plain, dictionary)


def test_values_undo_the_length_of_the_atoms() -> None:
    dictionary, x = _dictionary(30, 10), _descriptors(20, 10)
    lengths = np.linspace(0.5, 4, 30, dtype=np.float32)
    found = _dense(OmpCoder(dictionary * lengths[:, None], 4).encode(x), 30)
    expected = _dense(OmpCoder(dictionary, 4).encode(x), 30)
    np.testing.assert_allclose(found * lengths, expected, atol=1e-4)


def test_places_that_omp_leaves_free_hold_distinct_unused_atoms() -> None:
    dictionary = np.eye(8, dtype=np.float32)
    x = np.zeros((4, 8), np.float32)
    x[1, 2], x[2, [0, 7]], x[3, [0, 1, 2]] = 2, (1, 3), (1, 2, 3)
    codes = OmpCoder(dictionary, 4).encode(x)
    assert codes.leaf_ids.tolist() == [0, 0, 0, 0]
    assert codes.atom_ids.tolist() == [[0, 1, 2, 3], [2, 0, 1, 3], [0, 7, 1, 2], [0, 1, 2, 3]]
    assert codes.values.tolist() == [[0, 0, 0, 0], [2, 0, 0, 0], [1, 3, 0, 0], [1, 2, 3, 0]]
    assert codes.atom_ids.dtype == np.int32
    assert codes.values.dtype == np.float32


@pytest.mark.parametrize("seed", range(20))
def test_atoms_of_zeros_and_twins_give_finite_codes_of_distinct_atoms(seed: int) -> None:
    dictionary = _dictionary(6, 8, seed)
    dictionary[1] = 0
    dictionary[3] = dictionary[2]
    x = np.concatenate([_descriptors(20, 8, seed), dictionary])
    codes = OmpCoder(dictionary, 6).encode(x)
    assert np.isfinite(codes.values).all()
    assert all(len(set(row)) == 6 for row in codes.atom_ids.tolist())
    assert _relative_error(x, _dense(codes, 6), dictionary) < 1


def test_spams_2_6_14_is_not_left_to_read_uninitialised_thresholds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without eps, half of all processes got empty codes; the other half would pass a test."""
    spams = importlib.import_module("spams")
    real, passed = spams.omp, {}

    def recording(*arrays: Float32Array, **arguments: float) -> object:
        passed.update(arguments)
        return real(*arrays, **arguments)

    monkeypatch.setattr(spams, "omp", recording)
    OmpCoder(_dictionary(8, 5), 2).encode(_descriptors(3, 5))
    assert passed["eps"] == passed["lambda1"] == 0


def test_no_descriptors_give_no_codes() -> None:
    codes = OmpCoder(_dictionary(8, 5), 3).encode(np.empty((0, 5), np.float32))
    assert codes.atom_ids.shape == codes.values.shape == (0, 3)


def test_threads_do_not_change_the_codes() -> None:
    dictionary, x = _dictionary(200, 32), _descriptors(3000, 32)
    one, two = (OmpCoder(dictionary, 5, threads).encode(x) for threads in (1, 2))
    np.testing.assert_array_equal(one.atom_ids, two.atom_ids)
    np.testing.assert_array_equal(one.values, two.values)


@pytest.mark.parametrize("nonzeros", [0, 6])
def test_nonzeros_beyond_the_dictionary_are_refused(nonzeros: int) -> None:
    with pytest.raises(ConfigError, match=f"nonzeros is {nonzeros}, expected 1 to 5"):
        OmpCoder(_dictionary(8, 5), nonzeros)


def test_descriptors_of_another_width_are_refused() -> None:
    with pytest.raises(DescriptorError, match=r"shape \[3, 6\], expected \[n, 5\]"):
        OmpCoder(_dictionary(8, 5), 2).encode(_descriptors(3, 6))


def test_descriptors_that_are_not_finite_are_refused() -> None:
    x = _descriptors(3, 5)
    x[1, 1] = np.nan
    with pytest.raises(DescriptorError, match="not finite"):
        OmpCoder(_dictionary(8, 5), 2).encode(x)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(TrainingError, match=r"spams-bin.*pip install 'leafcode\[bench\]'"):
        OmpCoder(_dictionary(8, 5), 2).encode(_descriptors(3, 5))


def test_online_learning_lowers_the_error_and_repeats_itself() -> None:
    planted = _dictionary(30, 16)
    rng = np.random.default_rng(0)
    chosen = np.stack([rng.permutation(30)[:2] for _ in range(3000)])
    x = np.einsum("nm,nmd->nd", rng.normal(size=(3000, 2)), planted[chosen]).astype(np.float32)
    online = OnlineSettings(30, 2, batches=60, batch_size=256)
    first, again = (learn_online(x, online, np.random.default_rng(0)) for _ in range(2))
    start = first_dictionary(x, 30, np.random.default_rng(0))
    errors = [
        _relative_error(x, _dense(OmpCoder(atoms, 2).encode(x), 30), atoms)
        for atoms in (start, first)
    ]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-5)
    assert errors[1] < errors[0] / 2


def test_extractor_pools_like_the_engine(drawn_images: Path) -> None:
    """With one atom, tree and OMP are the same code."""
    atom = np.full((1, 128), 128**-0.5, np.float32)
    codes = CodesConfig(n_atoms=1, nonzeros=1)
    config = EngineConfig.of_codes(ViewConfig(depth=1), codes)
    tree = Tree.from_floats(np.zeros((1, 128), np.float32), np.zeros(1, np.float32))
    table: Int32Array = np.zeros((2, 1), np.int32)
    engine = FeatureExtractor(config, [tree], [CodesBlock(codes, Coder.from_table(table, atom))])
    data = next(drawn_images.glob("disc/*.png")).read_bytes()
    np.testing.assert_allclose(
        OmpExtractor(config, OmpCoder(atom, 1)).pooled_vector(data),
        engine.pooled_vector(data),
        # Half a unit of 2⁻¹⁵ in each of 128 values of the descriptor and of the atom.
        atol=float(np.sqrt(128) / 2**15),
    )


def test_ksvd_lowers_the_error_and_repeats_itself() -> None:
    planted = _dictionary(30, 16)
    rng = np.random.default_rng(0)
    chosen = np.stack([rng.permutation(30)[:2] for _ in range(2000)])
    x = np.einsum("nm,nmd->nd", rng.normal(size=(2000, 2)), planted[chosen]).astype(np.float32)
    first, again = (
        learn_by_ksvd(x, KsvdSettings(30, 2, 15), np.random.default_rng(0)) for _ in range(2)
    )
    start = first_dictionary(x, 30, np.random.default_rng(0))
    errors = [
        _relative_error(x, _dense(OmpCoder(atoms, 2).encode(x), 30), atoms)
        for atoms in (start, first)
    ]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-5)
    assert errors[1] < errors[0] / 2


def test_ksvd_gives_unused_atoms_to_descriptors_coded_worst() -> None:
    """Three directions in two-point clusters; the copies of the first leave two unused."""
    x = np.concatenate([np.repeat(np.eye(6, dtype=np.float32)[:1], 20, axis=0), np.eye(6)[:3]])
    atoms = learn_by_ksvd(x.astype(np.float32), KsvdSettings(3, 1, 6), np.random.default_rng(0))
    np.testing.assert_allclose(np.abs(atoms @ np.eye(6)[:3].T).max(axis=0), 1, atol=1e-5)


@pytest.mark.parametrize("kind", ["zero", "alike"])
def test_ksvd_is_safe_with_degenerate_descriptors(kind: str) -> None:
    x = np.zeros((20, 8), np.float32) if kind == "zero" else np.ones((20, 8), np.float32)
    assert np.isfinite(learn_by_ksvd(x, KsvdSettings(5, 2, 3), np.random.default_rng(0))).all()
