"""Copies of an image that views describe, against the oracle, and where their patches are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import BrokenImageError, sift
from service.engine.arrays import Float32Array, frozen
from service.engine.config import Descriptor, ViewConfig
from service.engine.description import describe, grid_shape, image_copy, patches
from service.engine.image import Picture
from service.engine.sift import SiftKind
from tests import reference
from tests.reference import EPSILON
from tests.support.descriptors import GRADIENT_ROUNDING
from tests.support.samples import PROPERTY, random_gray

seeds = st.integers(0, 2**32 - 1)
sides = st.sampled_from([1, 2, 3, 15, 16, 17, 33, 40])
reductions = st.sampled_from([1, 2, 3, 4, 16])


def gray_of(seed: int, height: int, width: int) -> Float32Array:
    return random_gray(np.random.default_rng(seed), height, width)


def copy_of(gray: Float32Array, descriptor: Descriptor, reduction: int) -> Float32Array:
    return image_copy(Picture(gray), ViewConfig(1, descriptor, reduction=reduction))


@PROPERTY
@given(seeds, sides, sides, reductions)
def test_a_reduced_copy_holds_the_means_of_boxes(
    seed: int, height: int, width: int, reduction: int
) -> None:
    gray = gray_of(seed, height, width)
    found, expected = copy_of(gray, "fast-sift", reduction), reference.box_means(gray, reduction)
    assert found.shape == expected.shape == (height // reduction, width // reduction)
    # The share of a pixel, each product and each sum round once, of grey levels up to one.
    assert np.abs(found - expected).max(initial=0) <= (reduction**2 + 2) * EPSILON


def test_a_copy_that_is_not_reduced_is_the_image_itself() -> None:
    gray = gray_of(0, 20, 30)
    assert copy_of(gray, "fast-sift", 1) is gray


@PROPERTY
@given(seeds, sides, sides, reductions)
def test_contours_are_the_means_of_the_root_of_the_gradient_s_magnitude(
    seed: int, height: int, width: int, reduction: int
) -> None:
    gray = gray_of(seed, height, width)
    found = copy_of(gray, "contour-sift", reduction)
    if min(height, width) < 4 + reduction:
        assert found.size == 0
        return
    expected = reference.contours(gray, reduction)
    assert found.shape == expected.shape
    # Rounding moves a magnitude m by δ, hence its root by δ / √m, but by √δ at the most.
    moved = np.sqrt(2) * GRADIENT_ROUNDING
    magnitudes = np.hypot(*reference.derivatives(gray))
    roots = np.minimum(np.sqrt(moved), moved / np.sqrt(np.maximum(magnitudes, moved)))
    # No root exceeds 2^¼; the squares, roots, shares, products and sums round once each.
    bound = reference.box_means(roots, reduction) + (reduction**2 + 6) * EPSILON * 2**0.25
    assert (np.abs(found - expected) <= bound).all()


def test_an_image_without_contours_is_drawn_black() -> None:
    flat = np.full((30, 30), 0.5, np.float32)
    # The taps of the derivative cancel but for their rounding.
    assert copy_of(flat, "contour-sift", 1).max() <= np.sqrt(np.sqrt(2) * GRADIENT_ROUNDING)


@pytest.mark.parametrize("descriptor", ["fast-sift", "lazebnik-sift", "contour-sift"])
@pytest.mark.parametrize("reduction", [1, 2, 3])
def test_the_descriptors_of_a_view_are_those_of_its_copy(
    descriptor: Descriptor, reduction: int
) -> None:
    view = ViewConfig(1, descriptor, reduction=reduction)
    picture = Picture(gray_of(1, 90, 100))
    copy = image_copy(picture, view)
    kind: SiftKind = "lazebnik-sift" if descriptor == "lazebnik-sift" else "fast-sift"
    expected = sift.describe(copy, kind, view.step)
    np.testing.assert_array_equal(describe(picture, view), expected)
    assert grid_shape(copy, view) == expected.shape[:2]


@pytest.mark.parametrize(
    ("descriptor", "reduction", "smallest"),
    [("fast-sift", 2, 40), ("lazebnik-sift", 3, 60), ("contour-sift", 1, 24)],
)
def test_a_copy_too_small_for_a_descriptor_has_none(
    descriptor: Descriptor, reduction: int, smallest: int
) -> None:
    view = ViewConfig(1, descriptor, reduction=reduction)
    assert describe(Picture(gray_of(2, smallest, smallest)), view).shape == (1, 1, 128)
    for height, width in ((smallest - 1, 200), (200, smallest - 1), (3, 3), (0, 0)):
        small = Picture(np.zeros((height, width), np.float32))
        assert describe(small, view).shape == (0, 0, 128)


def test_an_image_too_small_for_a_descriptor_is_refused() -> None:
    with pytest.raises(BrokenImageError, match="30x19 pixels at working size"):
        describe(Picture(gray_of(2, 19, 30)), ViewConfig(1))


@pytest.mark.parametrize("descriptor", ["fast-sift", "lazebnik-sift", "contour-sift"])
@pytest.mark.parametrize("reduction", [1, 2, 3])
@pytest.mark.parametrize("place", [(0, 0), (1, 2)])
def test_nothing_outside_its_patch_and_the_filter_changes_a_descriptor(
    descriptor: Descriptor, reduction: int, place: tuple[int, int]
) -> None:
    """The place of a patch, as the service states it, is that of the pixels that count."""
    view = ViewConfig(1, descriptor, 4, reduction)
    gray = gray_of(3, 101, 110)
    where = patches(101, 110, view)
    assert (where.step, where.side) == (4 * reduction, 16 * reduction)
    top, left = where.top + place[0] * where.step, where.left + place[1] * where.step
    border = 2 * reduction + (2 if descriptor == "contour-sift" else 0)
    other = np.ones_like(gray) - gray
    inside = (
        slice(top - border, top + where.side + border),
        slice(left - border, left + where.side + border),
    )
    other[inside] = gray[inside]
    found, expected = (describe(Picture(frozen(image)), view)[place] for image in (other, gray))
    np.testing.assert_array_equal(found, expected)
    # A pixel less on any side, and it is another one.
    for edge in (np.s_[:1, :], np.s_[-1:, :], np.s_[:, :1], np.s_[:, -1:]):
        cut = gray.copy()
        cut[inside][edge] = 1 - cut[inside][edge]
        assert (describe(Picture(cut), view)[place] != expected).any()
