"""The paper's fast dense SIFT: a grey image to a grid of 128-vectors.

Section "Sift grid" step by step; the loops are in `kernels/sift.py`. No padding:
every descriptor sees real pixels only, so the grid is a little smaller than half
the image.
"""

import numpy as np

from service.engine.arrays import Float32Array, frozen
from service.engine.config import DESCRIPTOR_WIDTH
from service.engine.errors import BrokenImageError
from service.engine.kernels.sift import build_feature_map, gather_descriptors

__all__ = ["SMALLEST_SIDE", "derivative_filters", "describe", "grid_shape"]

# The norm that a descriptor is cut down to; weaker ones stay weak, so that flat
# patches cannot win the maximum.
NORM_THRESHOLD = 1.0

# 2 pixels of filter on each side, then 8 cells of 2 pixels.
SMALLEST_SIDE = 20


def derivative_filters() -> tuple[Float32Array, Float32Array]:
    """The separable Gaussian derivative: smoothing (5,) and derivative (5,) taps.

    The paper prints the 5x5 product rounded to four digits. It is the discrete
    gradient of a Gaussian of width one, scaled to an absolute sum of two.
    """
    gaussian = np.exp(-0.5 * np.arange(-2, 3) ** 2)
    slope = -np.gradient(gaussian)
    slope *= 2 / (np.abs(slope).sum() * gaussian.sum())
    return gaussian.astype(np.float32), slope.astype(np.float32)


def _directions() -> Float32Array:
    angles = np.arange(4) * (np.pi / 4)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


_SMOOTH, _DERIVE = (frozen(taps) for taps in derivative_filters())
_DIRECTIONS = frozen(_directions())


def grid_shape(height: int, width: int) -> tuple[int, int]:
    """Rows and columns of descriptors in an image of this size."""
    return (height - 4) // 2 - 7, (width - 4) // 2 - 7


def describe(gray: Float32Array) -> Float32Array:
    """Descriptors on a grid of step two: gray (h, w) in [0, 1] -> (rows, cols, 128)."""
    height, width = gray.shape
    if min(height, width) < SMALLEST_SIDE:
        raise BrokenImageError(
            f"the image is {width}x{height} pixels at working size, "
            f"expected at least {SMALLEST_SIDE}x{SMALLEST_SIDE} for one descriptor"
        )
    rows, cols = grid_shape(height, width)
    features = np.empty((rows + 6, cols + 6, 8), np.float32)
    build_feature_map(frozen(gray), _SMOOTH, _DERIVE, _DIRECTIONS, features)
    descriptors = np.empty((rows, cols, DESCRIPTOR_WIDTH), np.float32)
    gather_descriptors(frozen(features), NORM_THRESHOLD, descriptors)
    return descriptors
