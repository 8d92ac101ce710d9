"""Colour descriptors: 4x4 cells with 8 numbers each, the layout of SIFT's.

A cell is a box of 2x2 pixels of the image at half size: the means of Y, Cb and Cr, their
spreads, and a constant that keeps the brightness of a descriptor in its direction, which is all
that the tree sees. Descriptors overlap, so that they stay in their map of cells.
"""

import numpy as np

from service.engine.arrays import Float32Array, UInt8Array, UInt64Array, aligned_empty, frozen
from service.engine.config import COLOUR_REDUCTION
from service.engine.fixedpoint import Descriptors
from service.engine.image import Picture
from service.engine.kernels.colour import build_colour_map
from service.engine.kernels.copies import reduce_image

__all__ = ["CELL", "PATCH_SIDE", "colour_map", "grid_shape", "locate"]

# Pixels of the reduced copy that a cell is wide, and cells that a descriptor is.
CELL = 2
_CELLS = 4

PATCH_SIDE = CELL * _CELLS

_NUMBERS = 8

# What makes the six numbers of a cell vary alike in photographs: colours vary less than
# brightness, and spreads less than means.
_SCALES = frozen(np.array([1, 4, 4, 3, 8, 8], np.float32))

# Sixteen of them make a length of two.
_CONSTANT = 0.5

# Cb and Cr of a pixel without colour.
_NEUTRAL = 128


def colour_map(picture: Picture) -> Float32Array:
    """Cells (rows, cols, 8) of a picture's colours."""
    colours = _without_colours(picture.gray) if picture.colours is None else picture.colours
    height, width = (side // CELL for side in colours.shape[:2])
    cells = aligned_empty((height, width, _NUMBERS), np.float32)
    build_colour_map(frozen(colours), _SCALES, _CONSTANT, cells)
    return cells


def _without_colours(gray: Float32Array) -> UInt8Array:
    brightness = np.empty([side // COLOUR_REDUCTION for side in gray.shape], np.float32)
    reduce_image(frozen(gray), COLOUR_REDUCTION, brightness)
    colours = np.full((*brightness.shape, 3), _NEUTRAL, np.uint8)
    colours[:, :, 0] = np.rint(255 * brightness)
    return colours


def grid_shape(cells: Float32Array, step: int) -> tuple[int, int]:
    """Rows and columns of descriptors, `step` pixels apart; none in a picture that is small."""
    rows, cols = (max(0, (side - _CELLS) // (step // CELL) + 1) for side in cells.shape[:2])
    return (rows, cols) if rows * cols else (0, 0)


def locate(cells: Float32Array, step: int) -> Descriptors:
    """The descriptors of the grid, row by row."""
    starts = _starts(*grid_shape(cells, step), cells.shape[1], step // CELL)
    return Descriptors(frozen(cells.reshape(-1)), starts, cells.shape[1] * _NUMBERS)


def _starts(rows: int, cols: int, pitch: int, stride: int) -> UInt64Array:
    """Where the first cell of every descriptor lies in a map with `pitch` cells a row."""
    first = stride * (np.arange(rows)[:, None] * pitch + np.arange(cols))
    return frozen((first * _NUMBERS).reshape(-1).astype(np.uint64))
