"""Anybody's vectors on models of SIFT: values with signs do not fit narrow directions."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import Codes, DescriptorError, Engine
from service.engine.arrays import Float32Array
from service.engine.config import CodesConfig, ViewConfig
from service.engine.fixedpoint import Descriptors
from service.engine.threads import ONE_THREAD
from service.engine.tree import Tree
from tests import reference
from tests.reference import EPSILON
from tests.support.samples import (
    AWKWARD_COUNTS,
    CONFIG,
    PROPERTY,
    VIEW,
    random_bundle,
    random_descriptors,
)

BUNDLE = random_bundle()
ENGINE = Engine(BUNDLE)

seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from([count for count in AWKWARD_COUNTS if count])


def assert_the_oracle_s(codes: Codes, descriptors: Float32Array) -> None:
    """Every decision and value in float64, up to what rounding the descriptors may move.

    Rows with signs are rounded to wide steps, all others to narrow ones.
    """
    tree, coder = ENGINE.hash, ENGINE.coder
    assert isinstance(tree, Tree)
    assert not tree.wide
    for x, leaf, atom_ids, values in zip(
        descriptors, codes.leaf_ids, codes.atom_ids, codes.values, strict=True
    ):
        wide = bool((x < 0).any())
        oracle = reference.DecisionTree(tree.vectors, tree.thresholds, wide)
        for right, margin, rounding in reference.decision_margins(oracle, x, int(leaf)):
            assert margin > -rounding if right else margin <= rounding
        assert atom_ids.tolist() == coder.table[leaf].tolist()
        atoms = coder.dictionary[atom_ids].astype(np.float64)
        sizes = np.linalg.norm(np.linalg.pinv(atoms), axis=0)
        # Half a step in each value, or one where an int16 is cut off; and sums in float32.
        moved = reference.step_of(x, wide=wide) * (1 + np.sqrt(128) / 2)
        moved += 2 * 128 * EPSILON * float(np.linalg.norm(x))
        assert (np.abs(values - reference.least_squares_code(atoms, x)) <= sizes * moved).all()


@PROPERTY
@given(seeds, counts)
def test_values_with_signs_have_the_codes_of_the_oracle(seed: int, count: int) -> None:
    descriptors = random_descriptors(np.random.default_rng(seed), count)
    assert_the_oracle_s(ENGINE.encode(descriptors), descriptors)


@PROPERTY
@given(seeds, counts)
def test_values_without_signs_have_the_codes_of_the_oracle_in_narrow_steps(
    seed: int, count: int
) -> None:
    descriptors = random_descriptors(np.random.default_rng(seed), count, signs=False)
    assert_the_oracle_s(ENGINE.encode(descriptors), descriptors)


@PROPERTY
@given(seeds, counts, st.floats(0, 1))
def test_rows_with_and_without_signs_are_coded_together(
    seed: int, count: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    descriptors = random_descriptors(rng, count, signs=False)
    signed = rng.random(count) < share
    signed[rng.integers(count)] = True
    descriptors[signed] = random_descriptors(rng, int(signed.sum()))
    codes = ENGINE.encode(descriptors)
    assert_the_oracle_s(codes, descriptors)
    # Whether others have signs changes nothing: each has the bits that it has alone.
    alone = [ENGINE.encode(row[None]) for row in descriptors]
    for name in ("leaf_ids", "atom_ids", "values"):
        expected = np.concatenate([getattr(code, name) for code in alone])
        np.testing.assert_array_equal(getattr(codes, name), expected)


@pytest.mark.parametrize("value", [-1e-40, -1e-3, -5.0])
@pytest.mark.parametrize("place", [(0, 0), (7, 31), (8, 64), (32, 127)])
def test_one_sign_anywhere_is_enough(value: float, place: tuple[int, int]) -> None:
    descriptors = random_descriptors(np.random.default_rng(3), 33, signs=False)
    descriptors[place] = value
    assert_the_oracle_s(ENGINE.encode(descriptors), descriptors)


def test_the_sign_of_a_zero_changes_no_code() -> None:
    descriptors = random_descriptors(np.random.default_rng(4), 33, signs=False)
    descriptors[:, 5] = 0
    plain = ENGINE.encode(descriptors)
    descriptors[::2, 5] = -0.0
    signed = ENGINE.encode(descriptors)
    np.testing.assert_array_equal(plain.leaf_ids, signed.leaf_ids)
    np.testing.assert_array_equal(plain.values, signed.values)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_any_number_of_threads_gives_the_same_codes(threads: int) -> None:
    # Signs in the rows of the last thread only.
    descriptors = random_descriptors(np.random.default_rng(5), 301, signs=False)
    descriptors[-1] *= -1
    found, expected = Engine(BUNDLE, threads).encode(descriptors), ENGINE.encode(descriptors)
    np.testing.assert_array_equal(found.leaf_ids, expected.leaf_ids)
    np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_among_rows_with_signs(value: float) -> None:
    descriptors = random_descriptors(np.random.default_rng(6), 9, signs=False)
    descriptors[2] *= -1
    descriptors[5, 77] = value
    with pytest.raises(DescriptorError, match="descriptor 5 has no finite norm"):
        ENGINE.encode(descriptors)


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_among_rows_without_signs(value: float) -> None:
    descriptors = random_descriptors(np.random.default_rng(6), 9, signs=False)
    descriptors[5, 77] = value
    with pytest.raises(DescriptorError, match="descriptor 5 has no finite norm"):
        ENGINE.encode(descriptors)


def test_signs_in_one_request_change_nothing_in_the_next() -> None:
    engine, plain = Engine(BUNDLE), random_descriptors(np.random.default_rng(7), 20, signs=False)
    before = engine.encode(plain).values
    engine.encode(-plain)
    np.testing.assert_array_equal(engine.encode(plain).values, before)


@pytest.mark.parametrize("kind", ["tanh", "sine"])
def test_values_with_signs_are_coded_after_a_projection_hash(kind: str) -> None:
    view = replace(VIEW, hash=kind)  # type: ignore[arg-type]
    engine = Engine(random_bundle(replace(CONFIG, views=(view,))))
    descriptors = random_descriptors(np.random.default_rng(8), 33)
    codes = engine.encode(descriptors)
    np.testing.assert_array_equal(codes.leaf_ids, engine.hash.route(descriptors))
    np.testing.assert_array_equal(codes.atom_ids, engine.coder.table[codes.leaf_ids])
    expected = engine.coder.widened().encode(descriptors, codes.leaf_ids)
    np.testing.assert_array_equal(codes.values, expected.values)
    assert np.isfinite(codes.values).all()


@pytest.mark.parametrize("signs", [True, False])
def test_a_view_of_colours_is_wide_from_the_start(*, signs: bool) -> None:
    config = replace(
        CONFIG,
        views=(VIEW, ViewConfig(depth=3, descriptor="colour", reduction=2)),
        blocks=(*CONFIG.blocks, CodesConfig(n_atoms=12, nonzeros=3, view=1)),
    )
    view = Engine(random_bundle(config)).views[1]
    assert view.codes is not None
    coder = view.codes.coder
    descriptors = random_descriptors(np.random.default_rng(9), 33, signs=signs)
    codes = view.encode(Descriptors.of(descriptors), ONE_THREAD)
    expected = coder.encode(descriptors, view.hash.route(descriptors))
    assert coder.wide
    np.testing.assert_array_equal(codes.leaf_ids, expected.leaf_ids)
    np.testing.assert_array_equal(codes.values, expected.values)
