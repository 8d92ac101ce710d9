"""The fast dense SIFT against the paper's text, its printed filter and its look-up table."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.engine import BrokenImageError, image, sift
from service.engine.arrays import Float32Array, frozen
from service.engine.config import STEPS
from service.engine.fixedpoint import NO_PEAKS
from service.engine.kernels.sift import _add_bands, build_feature_map
from service.engine.sift import SiftKind
from tests import reference
from tests.reference import EPSILON
from tests.support.descriptors import FEATURE_ROUNDING, HALF, LIPSCHITZ, cells_of
from tests.support.processes import ROOT
from tests.support.samples import PROPERTY, random_gray

SIZES = [(20, 20), (21, 20), (20, 21), (21, 21), (22, 20), (23, 37), (36, 29), (40, 40)]

gradients = hnp.arrays(
    np.float32, st.tuples(st.just(2), st.integers(1, 40)), elements=st.floats(-1, 1, width=32)
)
seeds = st.integers(0, 2**32 - 1)
sides = st.integers(20, 41)


def describe(gray: Float32Array) -> Float32Array:
    return sift.describe(gray, "fast-sift", STEPS["fast-sift"])


def bands_of(gradient: Float32Array) -> Float32Array:
    bands = np.zeros((8, gradient.shape[1]), np.float32)
    _add_bands(gradient, sift._DIRECTIONS, bands)
    return bands


def features_of(gray: Float32Array) -> Float32Array:
    height, width = gray.shape
    rows, cols = sift.grid_shape(height, width, STEPS["fast-sift"])
    halves = np.empty((rows + 6, 2, (cols + 7) // 2, 8), np.float32)
    peaks = np.empty(halves.shape[:3], np.uint32)
    build_feature_map(frozen(gray), *sift.FILTERS, sift._DIRECTIONS, halves, peaks)
    features = np.empty((rows + 6, cols + 6, 8), np.float32)
    features[:, ::2] = halves[:, 0]
    features[:, 1::2] = halves[:, 1, : (cols + 6) // 2]
    return features


def test_filter_rounded_to_four_digits_is_the_printed_table() -> None:
    smooth, derive = sift.derivative_filters()
    # A convolution turns its table round; the taps are those of a correlation.
    table = np.outer(smooth.astype(np.float64), derive.astype(np.float64)[::-1])
    np.testing.assert_array_equal(np.round(table, 4), reference.PRINTED_FILTER)


def test_filter_of_the_oracle_rounds_to_the_printed_table() -> None:
    np.testing.assert_array_equal(
        np.round(reference.x_derivative_filter(), 4), reference.PRINTED_FILTER
    )


def test_a_ramp_to_the_right_points_along_band_zero() -> None:
    gray = np.tile(np.linspace(0, 1, 24, dtype=np.float32), (24, 1))
    assert (cells_of(describe(gray)).argmax(axis=-1) == 0).all()


def test_a_ramp_downwards_points_along_band_two() -> None:
    gray = np.tile(np.linspace(0, 1, 24, dtype=np.float32), (24, 1)).T
    assert (cells_of(describe(gray)).argmax(axis=-1) == 2).all()


@PROPERTY
@given(gradients)
def test_bands_equal_the_literal_formula(gradient: Float32Array) -> None:
    expected = reference.orientation_bands(*gradient)
    # e rounds three times and enters with the ninth power, the quotient adds a few more.
    # The constant against 0/0 moves a value of size m by 4e-30/m, or by m: below 1e-14.
    tolerance = 36 * EPSILON * np.hypot(*gradient.astype(np.float64)) + 1e-14
    assert (np.abs(bands_of(gradient) - expected) <= tolerance).all()


@PROPERTY
@given(gradients)
def test_bands_equal_the_paper_s_table_within_its_bins(gradient: Float32Array) -> None:
    table = reference.LookUpTable()
    tolerance = LIPSCHITZ * np.sqrt(2) * table.half_width
    assert (np.abs(bands_of(gradient) - table.bands(*gradient)) <= tolerance).all()


@PROPERTY
@given(seeds)
def test_derivatives_of_grey_levels_never_leave_the_range_of_the_table(seed: int) -> None:
    binary = np.random.default_rng(seed).integers(0, 2, (24, 24)).astype(np.float64)
    assert max(np.abs(part).max() for part in reference.derivatives(binary)) <= 1


def test_a_pixel_without_gradient_adds_nothing() -> None:
    assert not bands_of(np.zeros((2, 3), np.float32)).any()


@PROPERTY
@given(seeds, sides, sides)
def test_feature_map_equals_the_oracle(seed: int, height: int, width: int) -> None:
    gray = random_gray(np.random.default_rng(seed), height, width)
    difference = np.abs(features_of(gray) - reference.features(gray))
    assert difference.max() <= FEATURE_ROUNDING


@PROPERTY
@given(seeds, sides, sides)
def test_descriptors_equal_the_oracle(seed: int, height: int, width: int) -> None:
    gray = random_gray(np.random.default_rng(seed), height, width)
    # Cutting a vector down to norm one brings two vectors nearer, never further apart.
    difference = np.abs(describe(gray) - reference.describe(gray))
    assert difference.max() <= FEATURE_ROUNDING


@PROPERTY
@given(seeds, sides, sides, st.sampled_from([2, 4]), st.sampled_from([None, np.inf, np.nan]))
def test_peaks_of_cells_measure_descriptors_as_all_their_values_do(
    seed: int, height: int, width: int, step: int, wrong: float | None
) -> None:
    rng = np.random.default_rng(seed)
    gray = random_gray(rng, height, width)
    gray[: height // 2] = 0.5  # flat patches, whose zeros may have signs
    if wrong is not None:
        gray[rng.integers(height), rng.integers(width)] = wrong
    located = sift.locate(gray, "fast-sift", step).descriptors
    assert len(located.peaks) == len(located.flat) // 8
    found = located.fixed(wide=False)
    expected = replace(located, peaks=NO_PEAKS).fixed(wide=False)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_black_and_white_noise_equals_the_oracle(height: int, width: int) -> None:
    gray = np.random.default_rng(height * width).integers(0, 2, (height, width))
    expected = reference.describe(gray)
    difference = np.abs(describe(gray.astype(np.float32)) - expected)
    assert difference.max() <= FEATURE_ROUNDING


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_grid_shape_agrees_with_describe(height: int, width: int) -> None:
    gray = np.zeros((height, width), np.float32)
    assert describe(gray).shape == (*sift.grid_shape(height, width, STEPS["fast-sift"]), 128)


def test_the_smallest_image_has_one_descriptor() -> None:
    assert sift.grid_shape(sift.SMALLEST_SIDE, sift.SMALLEST_SIDE, STEPS["fast-sift"]) == (1, 1)


@pytest.mark.parametrize(("height", "width"), [(19, 20), (20, 19), (1, 1), (1, 300), (0, 0)])
def test_an_image_too_small_for_one_descriptor_is_refused(height: int, width: int) -> None:
    with pytest.raises(BrokenImageError, match=f"is {width}x{height} pixels.*at least 20x20"):
        describe(np.zeros((height, width), np.float32))


@pytest.mark.parametrize("level", [0.0, 0.1, 1 / 3, 0.5, 1.0])
def test_a_flat_image_has_all_zero_descriptors(level: float) -> None:
    assert not describe(np.full((31, 26), level, np.float32)).any()


@PROPERTY
@given(seeds)
def test_norms_never_exceed_one(seed: int) -> None:
    gray = random_gray(np.random.default_rng(seed), 28, 28)
    norms = np.linalg.norm(describe(gray).astype(np.float64), axis=-1)
    # The norm is a sum of 128 squares that round, then a root and a quotient.
    assert norms.max() <= 1 + 64 * EPSILON


def test_a_strong_descriptor_has_norm_one() -> None:
    gray = np.random.default_rng(0).integers(0, 2, (24, 24)).astype(np.float32)
    norms = np.linalg.norm(describe(gray).astype(np.float64), axis=-1)
    np.testing.assert_allclose(norms, 1, rtol=64 * EPSILON)


def test_a_weak_descriptor_is_left_alone() -> None:
    gray = (np.random.default_rng(0).random((24, 24)) * 2**-7).astype(np.float32)
    features, descriptors = features_of(gray), cells_of(describe(gray))
    np.testing.assert_array_equal(descriptors[0, 0], features[0:8:2, 0:8:2])


def test_half_the_contrast_halves_a_weak_descriptor_exactly() -> None:
    gray = (np.random.default_rng(0).random((24, 24)) * 2**-7).astype(np.float32)
    np.testing.assert_array_equal(describe(gray * HALF), describe(gray) * HALF)


@PROPERTY
@given(seeds)
def test_a_brighter_image_has_the_same_descriptors(seed: int) -> None:
    gray = random_gray(np.random.default_rng(seed), 26, 24) * HALF
    difference = np.abs(describe(gray + HALF) - describe(gray))
    # Adding the offset rounds each grey level once more, which the filter at most doubles.
    assert difference.max() <= 3 * FEATURE_ROUNDING


# Only even sides: the last odd row or column is left out, on one side of the image.
@PROPERTY
@given(seeds)
def test_a_quarter_turn_turns_grid_cells_and_orientations(seed: int) -> None:
    gray = random_gray(np.random.default_rng(seed), 24, 30)
    cells = cells_of(describe(gray))
    turned = np.roll(np.rot90(np.rot90(cells), axes=(2, 3)), -2, axis=-1)
    found = cells_of(describe(np.rot90(gray)))
    np.testing.assert_allclose(found, turned, rtol=0, atol=2 * FEATURE_ROUNDING)


@PROPERTY
@given(seeds)
def test_a_mirror_image_mirrors_grid_cells_and_orientations(seed: int) -> None:
    gray = random_gray(np.random.default_rng(seed), 24, 30)
    cells = cells_of(describe(gray))
    mirrored = cells[:, ::-1, :, ::-1][..., (4 - np.arange(8)) % 8]
    found = cells_of(describe(gray[:, ::-1]))
    np.testing.assert_allclose(found, mirrored, rtol=0, atol=2 * FEATURE_ROUNDING)


@PROPERTY
@given(seeds)
def test_an_upside_down_image_turns_grid_cells_and_orientations_over(seed: int) -> None:
    gray = random_gray(np.random.default_rng(seed), 30, 24)
    cells = cells_of(describe(gray))
    mirrored = cells[::-1, :, ::-1][..., -np.arange(8) % 8]
    found = cells_of(describe(gray[::-1]))
    np.testing.assert_allclose(found, mirrored, rtol=0, atol=2 * FEATURE_ROUNDING)


def test_the_last_odd_row_and_column_are_not_seen() -> None:
    gray = random_gray(np.random.default_rng(3), 25, 27)
    np.testing.assert_array_equal(describe(gray), describe(gray[:24, :26]))


def test_a_shift_by_two_pixels_shifts_the_grid_by_one() -> None:
    gray = random_gray(np.random.default_rng(4), 30, 34)
    np.testing.assert_array_equal(describe(gray[2:, 2:]), describe(gray)[1:, 1:])


def test_describe_leaves_its_input_alone() -> None:
    gray = random_gray(np.random.default_rng(5), 22, 22)
    before = gray.copy()
    describe(gray)
    np.testing.assert_array_equal(gray, before)


@pytest.mark.parametrize("descriptor", ["fast-sift", "lazebnik-sift"])
@pytest.mark.parametrize(("height", "width"), [(41, 50), (42, 47), (43, 36)])
def test_a_descriptor_depends_on_its_patch_and_the_filter_around_it(
    descriptor: SiftKind, height: int, width: int
) -> None:
    gray = random_gray(np.random.default_rng(0), height, width)
    step = STEPS[descriptor]
    grid = sift.describe(gray, descriptor, step)
    left, top = sift.first_patch(height, width, descriptor, step)
    row, col = 3, 2
    y, x = top + row * step - 2, left + col * step - 2
    alone = sift.describe(frozen(gray[y : y + 20, x : x + 20].copy()), descriptor, step)
    assert alone.shape == (1, 1, 128)
    np.testing.assert_allclose(alone[0, 0], grid[row, col], atol=1e-6)


def test_opencvs_descriptors_fit_with_their_orientations_reversed() -> None:
    """As the README says: upright, 16 pixels a patch, the same cells, the other way round."""
    cv2 = pytest.importorskip("cv2")
    gray = image.decode((ROOT / "service" / "examples" / "stop_sign.png").read_bytes(), 300)
    ours = describe(gray)[10:90:8, 10:90:8].reshape(-1, 128)
    height, width = gray.shape
    left, top = sift.first_patch(height, width, "fast-sift", STEPS["fast-sift"])
    middles = 2 * np.arange(10, 90, 8) + sift.PATCH_SIDE / 2 - 0.5
    keypoints = [cv2.KeyPoint(left + x, top + y, 8 / 3, 0) for y in middles for x in middles]
    found, theirs = cv2.SIFT_create().compute(np.rint(255 * gray).astype(np.uint8), keypoints)
    assert len(found) == len(keypoints)
    strong = np.linalg.norm(ours, axis=1) > 0.5

    def likeness(orientations: list[int]) -> float:
        fitted = theirs.reshape(-1, 4, 4, 8)[..., orientations].reshape(-1, 128)
        products = (ours * fitted).sum(axis=1)
        lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(fitted, axis=1)
        return float((products[strong] / lengths[strong]).mean())

    assert likeness([0, 7, 6, 5, 4, 3, 2, 1]) > 0.75 > 0.6 > likeness(list(range(8)))


@pytest.mark.parametrize("step", [4, 6, 8])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_longer_step_leaves_descriptors_out(step: int, height: int, width: int) -> None:
    gray = random_gray(np.random.default_rng(2), height, width)
    found = sift.describe(gray, "fast-sift", step)
    np.testing.assert_array_equal(found, describe(gray)[:: step // 2, :: step // 2])
