"""Directions in fixed point against float64, and the integer instructions against Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import sift
from service.engine.arrays import Int16Array, Int32Array
from service.engine.compiling import kernel
from service.engine.fixedpoint import UNIT, Descriptors, quantise_rows
from service.engine.kernels.integers import LANES, dot
from tests import reference
from tests.reference import EPSILON
from tests.support.samples import AWKWARD_COUNTS, PROPERTY, random_descriptors

seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from(AWKWARD_COUNTS)
widths = st.sampled_from([1, 2, 3, 31, 32, 33, 127, 128, 129, 300])

# Half a unit, and what float32 adds to it before it is rounded.
HALF = 0.5 + UNIT * 128 * EPSILON


@kernel
def dot_rows(a: Int16Array, b: Int16Array, columns: int, sums: Int32Array) -> None:
    """Products of all rows of `a` with all rows of `b`."""
    for i in range(np.uint64(a.shape[0])):
        for j in range(np.uint64(b.shape[0])):
            total = 0
            for column in range(np.uint64(0), np.uint64(columns), np.uint64(LANES)):
                total += dot(a, i, b, j, column)
            sums[i, j] = total


@PROPERTY
@given(seeds, st.sampled_from([1, 2, 5]), st.sampled_from([128, 256, 384]))
def test_dot_adds_all_products(seed: int, rows: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-2000, 2001, (rows, width)).astype(np.int16) for _ in range(2))
    sums = np.empty((rows, rows), np.int32)
    dot_rows(a, b, width, sums)
    np.testing.assert_array_equal(sums, a.astype(np.int64) @ b.astype(np.int64).T)


def test_dot_of_the_longest_directions_does_not_overflow() -> None:
    rows = np.zeros((2, 128), np.int16)
    rows[0, 5], rows[1, 5] = 32767, -32768
    sums = np.empty((2, 2), np.int32)
    dot_rows(rows, rows, 128, sums)
    assert sums.tolist() == [[32767**2, -32767 * 32768], [-32767 * 32768, 32768**2]]


@PROPERTY
@given(seeds, counts, widths)
def test_directions_are_the_rounded_unit_vectors(seed: int, count: int, width: int) -> None:
    descriptors = random_descriptors(np.random.default_rng(seed), count, width)
    directions, lengths = Descriptors.of(descriptors).fixed
    expected = np.array([reference.fixed_point(x) for x in descriptors]).reshape(count, width)
    # The largest int16 stands for one.
    near = np.minimum(expected, UNIT - 1)
    assert (np.abs(directions[:, :width] - near) <= HALF).all()
    assert not directions[:, width:].any()
    norms = np.linalg.norm(descriptors.astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths, norms, rtol=(width + 2) * EPSILON)


@PROPERTY
@given(seeds, st.sampled_from([1, 5, 17]), widths)
def test_rows_of_a_model_are_rounded_the_same_way(seed: int, count: int, width: int) -> None:
    rows = random_descriptors(np.random.default_rng(seed), count, width)
    directions, lengths = quantise_rows(rows)
    expected = np.array([reference.fixed_point(x) for x in rows])
    off_by_length = np.abs(np.linalg.norm(rows.astype(np.float64), axis=1) / lengths - 1)
    slack = HALF + UNIT * off_by_length[:, None]
    assert (np.abs(directions[:, :width] - np.minimum(expected, UNIT - 1)) <= slack).all()
    assert not directions[:, width:].any()


def test_a_zero_descriptor_has_no_direction_and_no_length() -> None:
    directions, lengths = Descriptors.of(np.zeros((2, 128), np.float32)).fixed
    assert not directions.any()
    assert not lengths.any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_a_descriptor_that_is_not_finite_has_no_finite_length(value: float) -> None:
    descriptors = np.ones((3, 128), np.float32)
    descriptors[1, 7] = value
    assert np.isfinite(Descriptors.of(descriptors).fixed.lengths).tolist() == [True, False, True]


@PROPERTY
@given(seeds, st.integers(20, 40), st.integers(20, 40))
def test_descriptors_in_the_feature_map_are_those_laid_out(
    seed: int, height: int, width: int
) -> None:
    gray = np.random.default_rng(seed).random((height, width)).astype(np.float32)
    rows, cols, located = sift.locate(gray, "fast-sift", 2)
    joined = sift.describe(gray, "fast-sift", 2).reshape(rows * cols, 128)
    found, expected = located.fixed, Descriptors.of(joined).fixed
    # Scaled down to norm one before they are rounded, or not: one unit at the most.
    assert np.abs(found.directions.astype(int) - expected.directions).max() <= 1
    np.testing.assert_allclose(found.lengths, expected.lengths, rtol=130 * EPSILON)


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 9000])
def test_parts_cover_all_descriptors_once(count: int) -> None:
    descriptors = Descriptors.of(random_descriptors(np.random.default_rng(0), count, 3))
    numbers, directions = [np.empty(0, int)], [np.empty((0, 128), np.int16)]
    for rows, part in descriptors.parts():
        numbers.append(np.arange(count)[rows])
        directions.append(part.fixed.directions.copy())
    np.testing.assert_array_equal(np.concatenate(numbers), np.arange(count))
    np.testing.assert_array_equal(np.concatenate(directions), descriptors.fixed.directions)


def test_descriptors_in_fixed_point_are_one_part() -> None:
    descriptors = Descriptors.of(random_descriptors(np.random.default_rng(0), 5000))
    assert len(descriptors.fixed.lengths) == 5000
    ((rows, part),) = descriptors.parts()
    assert rows == slice(0, 5000)
    assert part is descriptors
