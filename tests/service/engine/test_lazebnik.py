"""Lazebnik's dense SIFT against a sum over every pixel of every patch, and Lowe's norm rule."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.engine import BrokenImageError, Engine, sift
from service.engine.arrays import Float32Array, frozen
from service.engine.config import STEPS, ViewConfig
from service.engine.kernels.sift import clamp_descriptors, sum_patches
from tests import reference
from tests.reference import EPSILON
from tests.support.descriptors import FEATURE_ROUNDING, HALF, cells_of
from tests.support.samples import CONFIG, PROPERTY, random_bundle, random_gray

STEP = STEPS["lazebnik-sift"]

# The weights of a bin add up to at most 16, as many pixels as a feature of the fast SIFT
# adds. They also round, and so does each of 8 + 8 additions to a sum of at most 16·√2.
SUM_ROUNDING = FEATURE_ROUNDING + 19 * EPSILON * 16 * np.sqrt(2)

# The norm is a sum of 128 squares that round, then a root and a quotient.
NORM_ROUNDING = 64 * EPSILON

SIZES = [(20, 20), (21, 20), (20, 23), (24, 24), (23, 37), (36, 29), (41, 21)]

seeds = st.integers(0, 2**32 - 1)
vectors = hnp.arrays(np.float32, 128, elements=st.floats(0, 1, width=32))


def describe(gray: Float32Array) -> Float32Array:
    return sift.describe(gray, "lazebnik-sift", STEP)


def sums_of(gray: Float32Array, step: int) -> Float32Array:
    rows, cols = ((side - 20) // step + 1 for side in gray.shape)
    sums = np.zeros((rows, 128, cols), np.float32)
    steps = (*sift.FILTERS, sift._DIRECTIONS, sift._PATCH_WEIGHTS)
    sum_patches(frozen(gray), *steps, step, sums)
    return sums.transpose(0, 2, 1)


def clamped(vector: Float32Array) -> Float32Array:
    descriptors = np.empty((1, 1, 128), np.float32)
    clamp_descriptors(
        frozen(vector.reshape(1, 128, 1)), sift.NORM_THRESHOLD, sift.LARGEST_VALUE, descriptors
    )
    found: Float32Array = descriptors[0, 0]
    return found


def norms_of(descriptors: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    norms: npt.NDArray[np.float64] = np.linalg.norm(descriptors.astype(np.float64), axis=-1)
    return norms


def noise(height: int, width: int, contrast: float = 1.0) -> Float32Array:
    rng = np.random.default_rng(height * width)
    return (rng.random((height, width)) * contrast).astype(np.float32)


# --- sums ----------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3, 4, 16, 17])
@pytest.mark.parametrize("height_and_width", [(20, 20), (20, 24), (38, 21)])
def test_sums_equal_the_oracle_at_every_step(height_and_width: tuple[int, int], step: int) -> None:
    height, width = ((side - 20) // step * step + 20 for side in height_and_width)
    gray = noise(height, width)
    difference = np.abs(sums_of(gray, step) - reference.patch_sums(gray, step))
    assert difference.max() <= SUM_ROUNDING


def test_pixels_beyond_a_patch_and_its_filter_do_not_matter() -> None:
    gray = noise(28, 28)
    other = np.zeros_like(gray)
    other[4:24, 4:24] = gray[4:24, 4:24]
    np.testing.assert_array_equal(describe(other)[1, 1], describe(gray)[1, 1])


def test_a_pixel_between_two_bins_counts_in_both() -> None:
    shares = sift._PATCH_WEIGHTS / sift._PATCH_WEIGHTS.sum(axis=0)
    np.testing.assert_allclose(shares[:, 3], [5 / 8, 3 / 8, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(shares[:, 8], [0, 3 / 8, 5 / 8, 0], rtol=1e-6)


def test_a_ramp_weighs_by_its_distance_to_the_bins_alone() -> None:
    """Shares along an axis add up to 4 in an inner bin and to 3.5 in an outer one.

    As in `sp_find_sift_grid.m`. We had a Gaussian over the patch too, which is Lowe's.
    """
    ramp = np.tile(np.linspace(0, 0.05, 20, dtype=np.float32), (20, 1))
    strength = cells_of(describe(ramp))[0, 0, :, :, 0]
    along = np.array([3.5, 4, 4, 3.5])
    np.testing.assert_allclose(strength / strength[1, 1], np.outer(along, along) / 16, rtol=1e-5)
    assert (cells_of(describe(ramp)).argmax(axis=-1) == 0).all()


# --- the norm rule -------------------------------------------------------------------


@PROPERTY
@given(vectors, st.sampled_from([1.0, 0.1]))
def test_scaling_equals_the_oracle(vector: Float32Array, contrast: float) -> None:
    vector = vector * np.float32(contrast)
    assume(abs(float(norms_of(vector)) - 1) > NORM_ROUNDING)
    # Two norms and three products round, one after the other.
    expected = reference.clamped(vector)
    np.testing.assert_allclose(clamped(vector), expected, rtol=3 * NORM_ROUNDING, atol=1e-38)


def test_one_strong_value_is_clamped_at_a_fifth_before_the_second_scaling() -> None:
    vector = np.zeros(128, np.float32)
    vector[:2] = 30, 1
    weak = 1 / np.sqrt(901)
    expected = np.array([0.2, weak]) / np.hypot(0.2, weak)
    np.testing.assert_allclose(clamped(vector)[:2], expected, rtol=NORM_ROUNDING)


def test_values_below_a_fifth_keep_their_ratios() -> None:
    vector = np.linspace(1, 2, 128, dtype=np.float32)
    np.testing.assert_allclose(clamped(vector) * norms_of(vector), vector, rtol=3 * NORM_ROUNDING)


def test_a_norm_of_exactly_one_is_left_alone() -> None:
    vector = np.zeros(128, np.float32)
    vector[7] = 1
    np.testing.assert_array_equal(clamped(vector), vector)


def test_a_weak_descriptor_is_left_alone() -> None:
    gray = noise(24, 28, 2**-7)
    sums = sums_of(gray, STEP)
    assert 0 < norms_of(sums).max() < 1
    np.testing.assert_array_equal(describe(gray), sums)


def test_half_the_contrast_halves_a_weak_descriptor_exactly() -> None:
    gray = noise(24, 24, 2**-7)
    np.testing.assert_array_equal(describe(gray * HALF), describe(gray) * HALF)


@PROPERTY
@given(seeds)
def test_norms_never_exceed_one(seed: int) -> None:
    gray = random_gray(np.random.default_rng(seed), 28, 28)
    assert norms_of(describe(gray)).max() <= 1 + NORM_ROUNDING


def test_a_strong_descriptor_has_norm_one() -> None:
    np.testing.assert_allclose(norms_of(describe(noise(28, 24))), 1, rtol=NORM_ROUNDING)


# --- images --------------------------------------------------------------------------


@pytest.mark.parametrize("contrast", [1.0, 0.3, 0.01])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_descriptors_equal_the_oracle(height: int, width: int, contrast: float) -> None:
    gray = noise(height, width, contrast)
    # Near norm one, rounding decides whether a descriptor is clamped.
    assert np.abs(norms_of(reference.patch_sums(gray, STEP)) - 1).min() > 1e-3
    difference = np.abs(describe(gray) - reference.describe_lazebnik(gray, STEP))
    assert difference.max() <= SUM_ROUNDING


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_grid_shape_agrees_with_describe(height: int, width: int) -> None:
    shape = sift.grid_shape(height, width, STEP)
    assert describe(np.zeros((height, width), np.float32)).shape == (*shape, 128)


def test_the_smallest_image_has_one_descriptor() -> None:
    assert sift.grid_shape(sift.SMALLEST_SIDE, sift.SMALLEST_SIDE, STEP) == (1, 1)


@pytest.mark.parametrize(("height", "width"), [(19, 20), (20, 19), (1, 300), (0, 0)])
def test_an_image_too_small_for_one_descriptor_is_refused(height: int, width: int) -> None:
    with pytest.raises(BrokenImageError, match=f"is {width}x{height} pixels.*at least 20x20"):
        describe(np.zeros((height, width), np.float32))


@pytest.mark.parametrize("level", [0.0, 0.1, 1 / 3, 1.0])
def test_a_flat_image_has_all_zero_descriptors(level: float) -> None:
    assert not describe(np.full((31, 26), level, np.float32)).any()


# A fixed image each: near norm one, rounding would decide whether a descriptor is clamped.
@pytest.mark.parametrize("contrast", [1.0, 0.01])
def test_a_brighter_image_has_the_same_descriptors(contrast: float) -> None:
    gray = noise(26, 24, contrast) * HALF
    difference = np.abs(describe(gray + HALF) - describe(gray))
    assert difference.max() <= 3 * SUM_ROUNDING


@pytest.mark.parametrize("contrast", [1.0, 0.01])
@pytest.mark.parametrize(("height", "width"), [(24, 36), (26, 30)])
def test_a_mirrored_image_mirrors_grid_cells_and_orientations(
    height: int, width: int, contrast: float
) -> None:
    gray = noise(height, width, contrast)
    cells = cells_of(describe(gray))
    mirrored = cells[:, ::-1, :, ::-1][..., (4 - np.arange(8)) % 8]
    found = cells_of(describe(gray[:, ::-1]))
    np.testing.assert_allclose(found, mirrored, rtol=0, atol=2 * SUM_ROUNDING)


@pytest.mark.parametrize("contrast", [1.0, 0.01])
def test_a_quarter_turn_turns_grid_cells_and_orientations(contrast: float) -> None:
    gray = noise(24, 30, contrast)
    cells = cells_of(describe(gray))
    turned = np.roll(np.rot90(np.rot90(cells), axes=(2, 3)), -2, axis=-1)
    found = cells_of(describe(np.rot90(gray)))
    np.testing.assert_allclose(found, turned, rtol=0, atol=2 * SUM_ROUNDING)


def test_what_the_grid_leaves_over_is_left_out_on_both_sides() -> None:
    gray = noise(27, 26)
    np.testing.assert_array_equal(describe(gray), describe(gray[1:25, 1:25]))


def test_a_shift_by_the_step_shifts_the_grid_by_one() -> None:
    gray = noise(32, 36)
    np.testing.assert_array_equal(describe(gray[STEP:, STEP:]), describe(gray)[1:, 1:])


def test_describe_leaves_its_input_alone() -> None:
    gray = noise(22, 22)
    before = gray.copy()
    describe(gray)
    np.testing.assert_array_equal(gray, before)


def test_an_engine_describes_as_its_configuration_says() -> None:
    engine = Engine(random_bundle(replace(CONFIG, views=(ViewConfig(3, "lazebnik-sift"),))))
    gray = noise(40, 33)
    np.testing.assert_array_equal(engine.describe(gray), describe(gray))
