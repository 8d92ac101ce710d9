"""Dense SIFT, the paper's fast one (section "Sift grid") and Lazebnik's, row by row.

Arrays that live for one image row hold one orientation band after the other, so
that every inner loop runs along x and becomes SIMD; only the finished feature
map interleaves the eight bands of a cell, because a descriptor consists of cells.
Both are in this file because they share their first steps: numba's cache would not
notice a change in a part from another file.
"""

import numpy as np

from service.engine.arrays import Float32Array
from service.engine.compiling import kernel, part

__all__ = ["build_feature_map", "clamp_descriptors", "sum_patches"]

# Keeps 0/0 out of e²/m² at flat pixels; the smallest m² that matters, one grey
# level of 16 bits, is 1e-10.
_TINY = np.float32(1e-30)


@part
def _filter_row(
    gray: Float32Array,
    y: int,
    smooth: Float32Array,
    derive: Float32Array,
    columns: Float32Array,
    gradient: Float32Array,
) -> None:
    """Gaussian derivatives I_x, I_y of row `y`: down the columns, then along the row.

    gray (h, w); smooth, derive (5,); columns (2, w) scratch; gradient (2, w - 4) out.
    """
    width = gray.shape[1]
    for x in range(width):
        inner = gray[y + 1, x] + gray[y + 3, x]
        outer = gray[y, x] + gray[y + 4, x]
        columns[0, x] = smooth[2] * gray[y + 2, x] + smooth[1] * inner + smooth[0] * outer
        columns[1, x] = derive[4] * (gray[y + 4, x] - gray[y, x]) + derive[3] * (
            gray[y + 3, x] - gray[y + 1, x]
        )
    for x in range(width - 4):
        gradient[0, x] = derive[4] * (columns[0, x + 4] - columns[0, x]) + derive[3] * (
            columns[0, x + 3] - columns[0, x + 1]
        )
        gradient[1, x] = (
            smooth[2] * columns[1, x + 2]
            + smooth[1] * (columns[1, x + 1] + columns[1, x + 3])
            + smooth[0] * (columns[1, x] + columns[1, x + 4])
        )


@part
def _add_bands(gradient: Float32Array, directions: Float32Array, bands: Float32Array) -> None:
    """Add m·cos(φ-φₙ)₊⁹ of every pixel to its eight bands.

    With eₙ = I_x cosφₙ + I_y sinφₙ = m·cos(φ-φₙ), the value is eₙ·(eₙ²/m²)⁴ where eₙ
    is positive: no arctangent, no table. Band n+4 points the other way, so each
    direction serves two bands. gradient (2, w); directions (4, 2); bands (8, w).
    """
    width = gradient.shape[1]
    for n in range(4):
        cosine = directions[n, 0]
        sine = directions[n, 1]
        for x in range(width):
            ix = gradient[0, x]
            iy = gradient[1, x]
            e = ix * cosine + iy * sine
            squared = e * e / (ix * ix + iy * iy + _TINY)
            fourth = squared * squared
            value = e * (fourth * fourth)
            bands[n, x] += max(value, np.float32(0))
            bands[n + 4, x] += max(-value, np.float32(0))


@kernel
def build_feature_map(
    gray: Float32Array,
    smooth: Float32Array,
    derive: Float32Array,
    directions: Float32Array,
    first: int,
    features: Float32Array,
) -> None:
    """Filters, bands, 2x2 sum-subsampling and 2x2 smoothing, for some rows of the map.

    Cells of even columns come before those of odd ones, because a descriptor takes every
    second cell of a row: four cells that lie side by side like this. gray (h, w);
    features (rows, 2, ⌈cols / 2⌉, 8) are the rows from `first`; cols is (w - 4) // 2 - 1.
    """
    width = gray.shape[1]
    rows, cols = features.shape[0], (width - 4) // 2 - 1
    columns = np.empty((2, width), np.float32)
    gradient = np.empty((2, width - 4), np.float32)
    bands = np.empty((8, width - 4), np.float32)
    previous = np.empty((8, cols + 1), np.float32)
    current = np.empty((8, cols + 1), np.float32)
    for row in range(rows + 1):
        bands[:] = 0
        for y in range(2 * (first + row), 2 * (first + row) + 2):
            _filter_row(gray, y, smooth, derive, columns, gradient)
            _add_bands(gradient, directions, bands)
        for n in range(8):
            for x in range(cols + 1):
                current[n, x] = bands[n, 2 * x] + bands[n, 2 * x + 1]
        if row > 0:
            for x in range(cols):
                for n in range(8):
                    features[row - 1, x % 2, x // 2, n] = (previous[n, x] + previous[n, x + 1]) + (
                        current[n, x] + current[n, x + 1]
                    )
        previous, current = current, previous


@part
def _weigh_row(bands: Float32Array, weights: Float32Array, step: int, cells: Float32Array) -> None:
    """Share a row of pixels out to the bin columns of every patch along it.

    A pixel lies in two bin columns of a patch at the most; `picked` reads it once for
    both. bands (8, w); weights (4, 16); cells (32, cols) out, bin column before band.
    """
    cols = cells.shape[1]
    picked = np.empty(cols, np.float32)
    cells[:] = 0
    for n in range(8):
        for p in range(16):
            for x in range(cols):
                picked[x] = bands[n, step * x + p]
            for i in range(4):
                weight = weights[i, p]
                if weight > 0:
                    for x in range(cols):
                        cells[8 * i + n, x] += weight * picked[x]


@kernel
def sum_patches(
    gray: Float32Array,
    smooth: Float32Array,
    derive: Float32Array,
    directions: Float32Array,
    weights: Float32Array,
    step: int,
    sums: Float32Array,
) -> None:
    """Filters, bands, and their weighted sums over the 4x4 bins of 16x16 patches.

    A pixel's weight in a bin is one for its column times one for its row, so a row is
    weighed along x once and then added to all patches and bin rows that it lies in:
    exact, with 224/step + 896/step² products a pixel instead of 6272/step² one by one.
    gray (h, w); weights (4, 16), bin by place in the patch; sums (rows, 128, cols) of
    zeros at first. Patches lie along x last so that every inner loop becomes SIMD.
    """
    width = gray.shape[1]
    rows, cols = sums.shape[0], sums.shape[2]
    columns = np.empty((2, width), np.float32)
    gradient = np.empty((2, width - 4), np.float32)
    bands = np.empty((8, width - 4), np.float32)
    cells = np.empty((32, cols), np.float32)
    for y in range(step * (rows - 1) + 16):
        bands[:] = 0
        _filter_row(gray, y, smooth, derive, columns, gradient)
        _add_bands(gradient, directions, bands)
        _weigh_row(bands, weights, step, cells)
        for row in range(max(0, (y - 16) // step + 1), min(rows, y // step + 1)):
            for j in range(4):
                weight = weights[j, y - step * row]
                if weight > 0:
                    for k in range(32):
                        for x in range(cols):
                            sums[row, 32 * j + k, x] += weight * cells[k, x]


@kernel
def clamp_descriptors(
    sums: Float32Array, threshold: float, largest: float, descriptors: Float32Array
) -> None:
    """Scale those above `threshold` to it, clamp their values, and scale them once more.

    Values are clamped at `largest` times the threshold; weaker descriptors stay as they
    are. sums (rows, 128, cols) -> descriptors (rows, cols, 128).
    """
    for y in range(descriptors.shape[0]):
        for x in range(descriptors.shape[1]):
            squared = np.float32(0)
            for k in range(128):
                descriptors[y, x, k] = sums[y, k, x]
                squared += sums[y, k, x] * sums[y, k, x]
            if squared > threshold * threshold:
                most = np.float32(largest * np.sqrt(squared))
                clamped = np.float32(0)
                for k in range(128):
                    value = min(descriptors[y, x, k], most)
                    descriptors[y, x, k] = value
                    clamped += value * value
                scale = np.float32(threshold / np.sqrt(clamped))
                for k in range(128):
                    descriptors[y, x, k] *= scale
