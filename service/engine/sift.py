"""Dense SIFT, the paper's fast one and Lazebnik's: a grey image to a grid of 128-vectors.

Section "Sift grid" step by step; the loops are in `kernels/sift.py`. Both take the same
gradients and orientations, and describe patches of 16x16 pixels by 4x4 cells. The fast
one adds 4x4 pixels to a cell; Lazebnik's weighs each pixel by its place in the patch and
costs more. No padding: every descriptor sees real pixels only.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from service.engine.arrays import Float32Array, UInt32Array, UInt64Array, aligned_empty, frozen
from service.engine.config import DESCRIPTOR_WIDTH
from service.engine.errors import BrokenImageError
from service.engine.fixedpoint import Descriptors
from service.engine.kernels.encoding import Source
from service.engine.kernels.fixedpoint import CELL
from service.engine.kernels.sift import build_feature_map, clamp_descriptors, sum_patches

__all__ = [
    "FILTERS",
    "PATCH_SIDE",
    "SMALLEST_SIDE",
    "Grid",
    "SiftKind",
    "derivative_filters",
    "describe",
    "first_patch",
    "grid_shape",
    "in_bands",
    "locate",
]

SiftKind = Literal["fast-sift", "lazebnik-sift"]

# The norm that a descriptor is cut down to; weaker ones stay weak, so that flat
# patches cannot win the maximum.
NORM_THRESHOLD = 1.0

# Lazebnik's only, after Lowe: no value of a descriptor cut down to norm one exceeds this,
# so that one strong edge does not drown the rest.
LARGEST_VALUE = 0.2

# A patch, and the pixels of filter on each side.
PATCH_SIDE = 16
_FILTER = 2
SMALLEST_SIDE = PATCH_SIDE + 2 * _FILTER


class Grid(NamedTuple):
    """Descriptors row by row, and how many rows and columns of them there are."""

    rows: int
    cols: int
    descriptors: Descriptors


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


def _patch_weights() -> Float32Array:
    """Weights (4, 16) of a patch's columns, or rows, in each of its four bins.

    A pixel is shared linearly between the two bins whose centres it lies between: in each
    (1 - distance / 4)₊, as in Lazebnik's `sp_find_sift_grid.m`. Lowe has a Gaussian over
    the patch as well, she has not.
    """
    places = np.arange(PATCH_SIDE)
    centres = np.arange(1.5, PATCH_SIDE, 4)
    weights = np.maximum(1 - np.abs(places - centres[:, None]) / 4, 0)
    return weights.astype(np.float32)


FILTERS: tuple[Float32Array, Float32Array] = tuple(map(frozen, derivative_filters()))  # type: ignore[assignment]
"""Smoothing and derivative taps, as kernels take them."""

_DIRECTIONS = frozen(_directions())
_PATCH_WEIGHTS = frozen(_patch_weights())


def grid_shape(height: int, width: int, step: int) -> tuple[int, int]:
    """Rows and columns of descriptors in an image of this size; there must be one."""
    if min(height, width) < SMALLEST_SIDE:
        raise BrokenImageError(
            f"the image is {width}x{height} pixels at working size, "
            f"expected at least {SMALLEST_SIDE}x{SMALLEST_SIDE} for one descriptor"
        )
    return (height - SMALLEST_SIDE) // step + 1, (width - SMALLEST_SIDE) // step + 1


def first_patch(height: int, width: int, kind: SiftKind, step: int) -> tuple[int, int]:
    """Left column and top row of the grid's first patch, of PATCH_SIDE pixels a side."""
    top, left = _margin((height, width), kind, step)
    return left + _FILTER, top + _FILTER


def describe(gray: Float32Array, kind: SiftKind, step: int) -> Float32Array:
    """Descriptors on a regular grid: gray (h, w) in [0, 1] -> (rows, cols, 128)."""
    rows, cols, descriptors = locate(gray, kind, step)
    return descriptors.joined().reshape(rows, cols, DESCRIPTOR_WIDTH)


def locate(gray: Float32Array, kind: SiftKind, step: int) -> Grid:
    """The descriptors that `describe` returns; fast SIFT's stay in their feature map."""
    height, width = gray.shape
    rows, cols = grid_shape(height, width, step)
    if kind == "fast-sift":
        return Grid(rows, cols, _fast(gray, (rows, cols), step))
    top, left = _margin((height, width), kind, step)
    return Grid(rows, cols, _lazebnik(gray[top:, left:], (rows, cols), step))


def in_bands(width: int, step: int, rows: int) -> Source:
    """Fast SIFT of images so wide, to be computed in bands of at most so many rows of the grid.

    They are the descriptors of `locate`: one depends on the pixels of its patch only.
    """
    features, peaks = _empty_map(width, rows, step)
    cols = (width - SMALLEST_SIDE) // step + 1
    runs = _descriptors(features, peaks, (rows, cols), step).runs
    return Source(*FILTERS, _DIRECTIONS, step, SMALLEST_SIDE, features, peaks, runs)


def _margin(shape: tuple[int, int], kind: SiftKind, step: int) -> tuple[int, int]:
    """Pixel rows above and pixel columns left of all that the first descriptor depends on."""
    if kind == "fast-sift":
        return 0, 0
    # What the grid leaves over is left out on both sides, as in Lazebnik's code.
    top, left = ((side - SMALLEST_SIDE) % step // 2 for side in shape)
    return top, left


def _fast(gray: Float32Array, grid: tuple[int, int], step: int) -> Descriptors:
    """The paper's descriptors, as runs of the feature map."""
    features, peaks = _empty_map(gray.shape[1], grid[0], step)
    if not build_feature_map(frozen(gray), *FILTERS, _DIRECTIONS, features, peaks):
        raise MemoryError("there is not enough memory to describe an image")
    return _descriptors(features, peaks, grid, step)


def _descriptors(
    features: Float32Array, peaks: UInt32Array, grid: tuple[int, int], step: int
) -> Descriptors:
    """Those of a grid, in the memory of a feature map."""
    return Descriptors(
        frozen(features.reshape(-1)),
        _starts(*grid, features.shape[2], step // 2),
        2 * features[0].size,
        NORM_THRESHOLD,
        peaks=frozen(peaks.reshape(-1)),
    )


def _empty_map(width: int, rows: int, step: int) -> tuple[Float32Array, UInt32Array]:
    """Room for the feature map of some rows of the grid, and for the peaks of its cells.

    It has a cell for every second pixel each way; a step over two leaves cells out.
    """
    map_rows, cols = step // 2 * (rows - 1) + 1, (width - SMALLEST_SIDE) // 2 + 1
    cells = (map_rows + 6, 2, (cols + 7) // 2)
    return aligned_empty((*cells, CELL), np.float32), aligned_empty(cells, np.uint32)


@lru_cache(maxsize=32)
def _starts(rows: int, cols: int, half: int, stride: int) -> UInt64Array:
    """Where the first cell of every descriptor lies in a map with `half` cells of one parity."""
    x = stride * np.arange(cols)
    cells = (2 * stride * np.arange(rows)[:, None] + x % 2) * half + x // 2
    return frozen((cells * CELL).reshape(-1).astype(np.uint64))


def _lazebnik(gray: Float32Array, grid: tuple[int, int], step: int) -> Descriptors:
    rows, cols = grid
    sums = np.zeros((rows, DESCRIPTOR_WIDTH, cols), np.float32)
    descriptors = np.empty((rows, cols, DESCRIPTOR_WIDTH), np.float32)
    sum_patches(frozen(gray), *FILTERS, _DIRECTIONS, _PATCH_WEIGHTS, step, sums)
    clamp_descriptors(frozen(sums), NORM_THRESHOLD, LARGEST_VALUE, descriptors)
    return Descriptors.of(descriptors.reshape(rows * cols, DESCRIPTOR_WIDTH))
