"""Colours of small boxes of pixels, laid out as the cells of a descriptor."""

import numpy as np

from service.engine.arrays import Float32Array, UInt8Array
from service.engine.compiling import kernel

__all__ = ["build_colour_map"]

_ONE = np.uint64(1)


@kernel
def build_colour_map(
    colours: UInt8Array, scales: Float32Array, constant: float, cells: Float32Array
) -> None:
    """Mean and spread of Y, Cb and Cr over boxes of 2x2 pixels.

    A cell is the three means less one half, the three standard deviations, all scaled, a
    constant, and zero. colours (h, w, 3); scales (6,); cells (⌊h / 2⌋, ⌊w / 2⌋, 8) out.
    """
    unit, quarter, half = np.float32(1 / 255), np.float32(0.25), np.float32(0.5)
    for row in range(np.uint64(cells.shape[0])):
        above, below = row + row, row + row + _ONE
        for col in range(np.uint64(cells.shape[1])):
            left, right = col + col, col + col + _ONE
            for band in range(3):
                a = unit * np.float32(colours[above, left, band])
                b = unit * np.float32(colours[above, right, band])
                c = unit * np.float32(colours[below, left, band])
                d = unit * np.float32(colours[below, right, band])
                mean = quarter * (a + b + c + d)
                squares = (a - mean) ** 2 + (b - mean) ** 2 + (c - mean) ** 2 + (d - mean) ** 2
                cells[row, col, band] = scales[band] * (mean - half)
                cells[row, col, 3 + band] = scales[3 + band] * np.sqrt(quarter * squares)
            cells[row, col, 6] = constant
            cells[row, col, 7] = 0
