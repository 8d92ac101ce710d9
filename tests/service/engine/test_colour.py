"""Colour descriptors against the oracle, and where they are in an image."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import UInt8Array, frozen
from service.engine.config import ViewConfig
from service.engine.description import describe
from service.engine.image import Picture
from tests import reference

VIEW = ViewConfig(1, "colour", step=4, reduction=2)
"""As the recipes have it: descriptors every four pixels of the image at half size."""


def picture_of(colours: UInt8Array) -> Picture:
    """A picture whose grey values are of no account."""
    height, width = colours.shape[:2]
    return Picture(np.zeros((2 * height, 2 * width), np.float32), frozen(colours))


def random_colours(seed: int, height: int, width: int) -> UInt8Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize("step", [2, 4, 6])
@given(seed=st.integers(0, 99), height=st.integers(1, 33), width=st.integers(1, 33))
def test_descriptors_are_four_by_four_cells_of_the_oracle(
    step: int, seed: int, height: int, width: int
) -> None:
    colours = random_colours(seed, height, width)
    view = ViewConfig(1, "colour", step=step, reduction=2)
    found, cells = describe(picture_of(colours), view), reference.colour_cells(colours)
    rows, cols = (max(0, (side // 2 - 4) // (step // 2) + 1) for side in (height, width))
    assert found.shape == ((rows, cols, 128) if rows * cols else (0, 0, 128))
    for row, col in np.ndindex(found.shape[:2]):
        y, x = row * step // 2, col * step // 2
        expected = cells[y : y + 4, x : x + 4].reshape(128)
        np.testing.assert_allclose(found[row, col], expected, atol=2e-6)


def test_a_grey_image_has_the_descriptors_of_its_neutral_colours() -> None:
    levels = np.random.default_rng(5).integers(0, 256, (20, 24), np.uint8)
    neutral = np.full((20, 24, 3), 128, np.uint8)
    neutral[:, :, 0] = levels
    gray = np.repeat(np.repeat(levels, 2, axis=0), 2, axis=1) * np.float32(1 / 255)
    found = describe(Picture(gray), VIEW)
    np.testing.assert_array_equal(found, describe(picture_of(neutral), VIEW))
