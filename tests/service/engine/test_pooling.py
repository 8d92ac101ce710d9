"""Pyramid pooling against a dense maximum over every region of every level."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import Codes
from service.engine.config import CodesConfig, SignRule
from service.engine.pooling import pool
from tests import reference
from tests.reference import EPSILON
from tests.support.samples import PROPERTY, random_table

N_ATOMS, NONZEROS = 7, 3

PYRAMIDS = [(4, 2, 1), (2, 1), (1,), (3, 1)]
SIGN_RULES: tuple[SignRule, ...] = get_args(SignRule)

seeds = st.integers(0, 2**32 - 1)
sides = st.integers(1, 11)

every_rule = pytest.mark.parametrize("sign_rule", SIGN_RULES)
every_pyramid = pytest.mark.parametrize("pyramid", PYRAMIDS)


def config_with(
    pyramid: tuple[int, ...], sign_rule: SignRule, nonzeros: int = NONZEROS
) -> CodesConfig:
    return CodesConfig(N_ATOMS, nonzeros, sign_rule, pyramid)


def random_codes(seed: int, rows: int, cols: int, nonzeros: int = NONZEROS) -> Codes:
    rng = np.random.default_rng(seed)
    atom_ids = random_table(rng, rows * cols, N_ATOMS, nonzeros)
    values = rng.normal(size=atom_ids.shape).astype(np.float32)
    values[rng.random(atom_ids.shape) < 0.2] = 0
    return Codes(np.zeros(rows * cols, np.int32), atom_ids, values)


def oracle(codes: Codes, grid: tuple[int, int], config: CodesConfig) -> reference.Floats:
    shape = (*grid, config.nonzeros)
    return reference.pool(
        codes.atom_ids.reshape(shape),
        codes.values.reshape(shape),
        config.n_atoms,
        config.sign_rule,
        config.pyramid,
    )


@every_pyramid
@every_rule
@PROPERTY
@given(seed=seeds, rows=sides, cols=sides, nonzeros=st.sampled_from([NONZEROS, 5]))
def test_pooled_vector_equals_the_dense_maximum(
    pyramid: tuple[int, ...], sign_rule: SignRule, seed: int, rows: int, cols: int, nonzeros: int
) -> None:
    config = config_with(pyramid, sign_rule, nonzeros)
    codes = random_codes(seed, rows, cols, nonzeros)
    expected = oracle(codes, (rows, cols), config)
    expected /= max(float(np.linalg.norm(expected)), 1e-300)
    # The maxima are exact; the norm is a sum of n_features squares.
    np.testing.assert_allclose(
        pool(codes, (rows, cols), config), expected, rtol=(config.n_features + 4) * EPSILON
    )


@every_pyramid
@every_rule
@pytest.mark.parametrize("grid", [(1, 1), (1, 9), (9, 1), (2, 3), (3, 3)])
def test_a_grid_smaller_than_the_regions_leaves_the_others_zero(
    pyramid: tuple[int, ...], sign_rule: SignRule, grid: tuple[int, int]
) -> None:
    config, codes = config_with(pyramid, sign_rule), random_codes(3, *grid)
    np.testing.assert_array_equal(pool(codes, grid, config) > 0, oracle(codes, grid, config) > 0)


@every_pyramid
@every_rule
@PROPERTY
@given(seed=seeds)
def test_pooled_vector_has_unit_norm(
    pyramid: tuple[int, ...], sign_rule: SignRule, seed: int
) -> None:
    config = config_with(pyramid, sign_rule)
    norm = np.linalg.norm(pool(random_codes(seed, 9, 8), (9, 8), config).astype(np.float64))
    assert norm == pytest.approx(1, rel=(config.n_features + 4) * EPSILON)


@every_pyramid
@every_rule
def test_codes_of_zeros_stay_zero(pyramid: tuple[int, ...], sign_rule: SignRule) -> None:
    codes = random_codes(0, 5, 5)
    codes.values[:] = 0
    pooled = pool(codes, (5, 5), config_with(pyramid, sign_rule))
    np.testing.assert_array_equal(pooled, np.zeros_like(pooled))


@every_pyramid
@every_rule
def test_pooled_vector_has_the_configured_length(
    pyramid: tuple[int, ...], sign_rule: SignRule
) -> None:
    config = config_with(pyramid, sign_rule)
    pooled = pool(random_codes(0, 6, 5), (6, 5), config)
    assert pooled.shape == (config.n_features,)
    assert pooled.dtype == np.float32


@every_rule
def test_an_empty_grid_pools_to_zero(sign_rule: SignRule) -> None:
    config = config_with((2, 1), sign_rule)
    assert not pool(random_codes(0, 0, 0), (0, 0), config).any()


@pytest.mark.parametrize(
    ("sign_rule", "expected"),
    [
        ("absolute", [4, 3, 0]),
        ("raw", [2, 3, 0]),
        ("split", [2, 3, 0, 4, 0, 0]),
    ],
)
def test_a_worked_example_of_each_sign_rule(sign_rule: SignRule, expected: list[float]) -> None:
    config = CodesConfig(n_atoms=3, nonzeros=1, pyramid=(1,), sign_rule=sign_rule)
    atom_ids = np.array([[0], [0], [1]], np.int32)
    values = np.array([[2], [-4], [3]], np.float32)
    pooled = pool(Codes(np.zeros(3, np.int32), atom_ids, values), (1, 3), config)
    np.testing.assert_allclose(
        pooled, np.array(expected) / np.linalg.norm(expected), rtol=10 * EPSILON
    )


def test_a_worked_example_places_regions_row_by_row() -> None:
    config = CodesConfig(n_atoms=1, nonzeros=1, pyramid=(2, 1))
    values = np.array([[1], [2], [4], [2]], np.float32)
    codes = Codes(np.zeros(4, np.int32), np.zeros((4, 1), np.int32), values)
    expected = np.array([1, 2, 4, 2, 4]) / np.sqrt(41)
    np.testing.assert_allclose(pool(codes, (2, 2), config), expected, rtol=10 * EPSILON)


@every_rule
@PROPERTY
@given(seed=seeds, exponent=st.integers(-20, 20))
def test_the_scale_of_the_codes_does_not_matter(
    sign_rule: SignRule, seed: int, exponent: int
) -> None:
    config, codes = config_with((2, 1), sign_rule), random_codes(seed, 4, 5)
    scaled = Codes(codes.leaf_ids, codes.atom_ids, codes.values * np.float32(2.0**exponent))
    np.testing.assert_array_equal(pool(scaled, (4, 5), config), pool(codes, (4, 5), config))


def test_pool_leaves_its_codes_alone() -> None:
    codes = random_codes(1, 4, 4)
    values = codes.values.copy()
    pool(codes, (4, 4), config_with((2, 1), "absolute"))
    np.testing.assert_array_equal(codes.values, values)
