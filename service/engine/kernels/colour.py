"""Colours of small boxes of pixels, laid out as the cells of a descriptor."""

import numpy as np

from service.engine.arrays import Float32Array, UInt8Array
from service.engine.compiling import kernel

__all__ = ["build_colour_map"]


@kernel
def build_colour_map(
    colours: UInt8Array, side: int, scales: Float32Array, constant: float, cells: Float32Array
) -> None:
    """Mean and spread of Y, Cb and Cr over boxes of 2x2 means of side x side pixels.

    A cell is the three means less one half, the three standard deviations, all scaled, a
    constant, and zero. colours (h, w, 3); scales (6,); cells (⌊h / 2·side⌋, ⌊w / 2·side⌋, 8) out.
    """
    box = 2 * side
    share = np.float32(1 / (255 * side * side))
    quarter, half = np.float32(0.25), np.float32(0.5)
    sums = np.empty((4, 3), np.int32)
    for row in range(cells.shape[0]):
        for col in range(cells.shape[1]):
            sums[:] = 0
            for dy in range(box):
                for dx in range(box):
                    place = 2 * (dy // side) + dx // side
                    for band in range(3):
                        sums[place, band] += colours[box * row + dy, box * col + dx, band]
            for band in range(3):
                a, b = share * sums[0, band], share * sums[1, band]
                c, d = share * sums[2, band], share * sums[3, band]
                mean = quarter * (a + b + c + d)
                squares = (a - mean) ** 2 + (b - mean) ** 2 + (c - mean) ** 2 + (d - mean) ** 2
                cells[row, col, band] = scales[band] * (mean - half)
                cells[row, col, 3 + band] = scales[3 + band] * np.sqrt(quarter * squares)
            cells[row, col, 6] = constant
            cells[row, col, 7] = 0
