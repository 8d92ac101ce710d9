"""An explanation to look at: its map in red and blue over the image.

Red speaks for the label and blue against it, the more the stronger the colour. The image itself
is drawn in grey, so that no colour is its own.
"""

from io import BytesIO

import numpy as np
from PIL import Image

from service.engine.arrays import Float32Array, Float64Array, UInt8Array

__all__ = ["draw_overlay"]

_FOR = np.array([214, 39, 40], np.float32)
_AGAINST = np.array([31, 90, 200], np.float32)

# How much of a pixel the strongest cell covers, and how much faster weaker ones come to count.
_COVER = np.float32(0.8)
_GAMMA = np.float32(0.6)
# The grey of black, so that blue and red are told apart there, too.
_DARKEST = np.float32(70)


def draw_overlay(pixels: UInt8Array, cells: Float64Array) -> bytes:
    """A PNG of an image (h, w, 3) with the map of cells (any, any) over all of it."""
    height, width = pixels.shape[:2]
    strengths = _strengths(cells, (width, height))[:, :, np.newaxis]
    gray = np.asarray(Image.fromarray(pixels).convert("L"), np.float32)[:, :, np.newaxis]
    lifted = _DARKEST + gray * (1 - _DARKEST / 255)
    colours = np.where(strengths > 0, _FOR, _AGAINST)
    mixed = lifted + _COVER * np.abs(strengths) ** _GAMMA * (colours - lifted)
    stream = BytesIO()
    Image.fromarray(np.rint(mixed).astype(np.uint8)).save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def _strengths(cells: Float64Array, size: tuple[int, int]) -> Float32Array:
    """The cells from -1 to 1, interpolated at every pixel."""
    largest = float(np.abs(cells).max(initial=0))
    scaled = (cells / largest if largest else cells).astype(np.float32)
    smooth = Image.fromarray(scaled).resize(size, Image.Resampling.BICUBIC)
    return np.asarray(smooth, np.float32).clip(-1, 1)
