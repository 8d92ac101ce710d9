"""Pictures of explanations: the map over the image, in red and blue."""

import io

import numpy as np
import pytest
from PIL import Image

from service.engine.arrays import Float64Array, UInt8Array
from service.engine.image import decode, decode_rgb
from service.engine.overlay import draw_overlay
from tests.support.samples import IMAGES

GRAY = np.full((40, 60, 3), 128, np.uint8)


def _drawn(pixels: UInt8Array, cells: Float64Array) -> UInt8Array:
    with Image.open(io.BytesIO(draw_overlay(pixels, cells))) as picture:
        return np.asarray(picture)


def test_red_is_for_and_blue_against() -> None:
    cells = np.zeros((4, 6))
    cells[0, 0], cells[3, 5] = 2, -1
    drawn = _drawn(GRAY, cells).astype(int)
    red, blue, nothing = drawn[5, 5], drawn[35, 55], drawn[35, 5]
    assert red[0] > 180 > 100 > red[2]
    assert blue[2] > blue[0]
    assert abs(red - nothing).max() > 1.2 * abs(blue - nothing).max()
    assert nothing[0] == nothing[1] == nothing[2]


def test_a_map_of_nothing_shows_the_image_in_light_grey() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    drawn = _drawn(pixels, np.zeros((32, 32)))
    brightness = np.asarray(Image.fromarray(pixels).convert("L"))
    # Black is dark grey, and white stays white.
    np.testing.assert_allclose(drawn[:, :, 0], 70 + brightness * (185 / 255), atol=0.6)
    np.testing.assert_array_equal(drawn[:, :, 0], drawn[:, :, 2])


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_of_every_format_is_decoded_to_be_looked_at(name: str) -> None:
    pixels, gray = decode_rgb(IMAGES[name], 45), decode(IMAGES[name], 45)
    assert pixels.shape == (36, 45, 3)
    brightness = np.asarray(Image.fromarray(pixels).convert("L")) / 255
    assert np.abs(brightness - gray).mean() < 0.03
