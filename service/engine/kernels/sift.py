"""Dense SIFT, the paper's fast one (section "Sift grid") and Lazebnik's, row by row.

Arrays that live for one image row hold one orientation band after the other, so
that every inner loop runs along x and becomes SIMD; only the finished feature
map interleaves the eight bands of a cell, because a descriptor consists of cells.
Both are in this file because they share their first steps.
"""

from typing import NamedTuple

import numpy as np

from service.engine.arrays import Float32Array, UInt32Array
from service.engine.compiling import allocating_kernel, kernel, part
from service.engine.kernels.cells import COLUMNS, store_cells
from service.engine.kernels.fixedpoint import bits_of
from service.engine.kernels.system import free_floats, own_floats

__all__ = ["build_feature_map", "clamp_descriptors", "filter_row", "sum_patches"]

# Keeps 0/0 out of e²/m² at flat pixels; the smallest m² that matters, one grey
# level of 16 bits, is 1e-10.
_TINY = np.float32(1e-30)

# Constants of the type of an index: numba checks signed ones for being negative, inside the loop.
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)


@part
def filter_row(
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
def _signed_band(
    ix: np.float32, iy: np.float32, inverse: np.float32, cosine: np.float32, sine: np.float32
) -> np.float32:
    """m·|cos(φ-φₙ)|⁹ with the cosine's sign: what band n gets, or minus what n + 4 gets.

    With eₙ = I_x cosφₙ + I_y sinφₙ = m·cos(φ-φₙ) it is eₙ·(eₙ²/m²)⁴: no arctangent, no
    table. `inverse` is 1/m².
    """
    e = ix * cosine + iy * sine
    squared = e * e * inverse
    fourth = squared * squared
    return e * (fourth * fourth)


@part
def _inverse_energy(ix: np.float32, iy: np.float32) -> np.float32:
    """1/m²."""
    return np.float32(1) / (ix * ix + iy * iy + _TINY)


@part
def _add_bands(gradient: Float32Array, directions: Float32Array, bands: Float32Array) -> None:
    """Add m·cos(φ-φₙ)₊⁹ of every pixel to its eight bands.

    gradient (2, w); directions (4, 2); bands (8, w).
    """
    for n in range(4):
        cosine, sine = directions[n, 0], directions[n, 1]
        for x in range(gradient.shape[1]):
            ix, iy = gradient[0, x], gradient[1, x]
            value = _signed_band(ix, iy, _inverse_energy(ix, iy), cosine, sine)
            bands[n, x] += max(value, np.float32(0))
            bands[n + 4, x] += max(-value, np.float32(0))


@part
def _join_bands(
    upper: Float32Array,
    lower: Float32Array,
    inverses: Float32Array,
    directions: Float32Array,
    bands: Float32Array,
) -> None:
    """The bands of two rows added up, in one pass instead of two.

    upper, lower (2, w) are their gradients; inverses (2, w) scratch; bands (8, w) out.
    """
    for x in range(upper.shape[1]):
        inverses[0, x] = _inverse_energy(upper[0, x], upper[1, x])
        inverses[1, x] = _inverse_energy(lower[0, x], lower[1, x])
    for n in range(4):
        cosine, sine = directions[n, 0], directions[n, 1]
        for x in range(upper.shape[1]):
            one = _signed_band(upper[0, x], upper[1, x], inverses[0, x], cosine, sine)
            two = _signed_band(lower[0, x], lower[1, x], inverses[1, x], cosine, sine)
            bands[n, x] = max(one, np.float32(0)) + max(two, np.float32(0))
            bands[n + 4, x] = max(-one, np.float32(0)) + max(-two, np.float32(0))


class RowBuffers(NamedTuple):
    """Memory for two rows of pixels on their way to a row of cells, for images up to a width w.

    columns (2, w); upper, lower, inverses (2, w - 4); bands (8, w - 4); even and odd (8, cols),
    the last rows of cells of even and of odd numbers.
    """

    columns: Float32Array
    upper: Float32Array
    lower: Float32Array
    inverses: Float32Array
    bands: Float32Array
    even: Float32Array
    odd: Float32Array


@part
def new_row_buffers(width: int) -> RowBuffers:
    """Buffers of the kernel's own for images of a width; without memory, some have no rows."""
    inner, cols = width - 4, (width - 4) // 2 - 1
    return RowBuffers(
        own_floats(2, width),
        own_floats(2, inner),
        own_floats(2, inner),
        own_floats(2, inner),
        own_floats(8, inner),
        own_floats(8, cols),
        own_floats(8, cols),
    )


@part
def have_memory(buffers: RowBuffers) -> bool:
    """Whether there was memory for all buffers."""
    return (
        len(buffers.columns) > 0
        and len(buffers.upper) > 0
        and len(buffers.lower) > 0
        and len(buffers.inverses) > 0
        and len(buffers.bands) > 0
        and len(buffers.even) > 0
        and len(buffers.odd) > 0
    )


@part
def free_row_buffers(buffers: RowBuffers) -> None:
    """Free what `new_row_buffers` made."""
    free_floats(buffers.columns)
    free_floats(buffers.upper)
    free_floats(buffers.lower)
    free_floats(buffers.inverses)
    free_floats(buffers.bands)
    free_floats(buffers.even)
    free_floats(buffers.odd)


@part
def fill_feature_map(
    gray: Float32Array,
    first: int,
    begin: int,
    end: int,
    smooth: Float32Array,
    derive: Float32Array,
    directions: Float32Array,
    buffers: RowBuffers,
    features: Float32Array,
    peaks: UInt32Array,
    place: int,
) -> None:
    """Filters, bands, 2x2 sum-subsampling and 2x2 smoothing.

    Cells of even columns come before those of odd ones, because a descriptor takes every
    second cell of a row: four cells that lie side by side like this. gray (h, w) -> rows `begin`
    to `end` of the map whose first row has its corner at pixel row `first`, into the rows of
    features (≥ rows, 2, ⌈cols / 2⌉, 8) from `place` on, where cols is (w - 4) // 2 - 1. As many
    peaks (≥ rows, 2, ⌈cols / 2⌉) get the bits of each cell's largest value. Unless `begin` is zero,
    the previous call with these buffers has ended there.
    """
    columns, upper, lower, inverses, bands, even, odd = buffers
    cols = (gray.shape[1] - 4) // 2 - 1
    whole = cols // COLUMNS * COLUMNS
    for row in range(begin + 1 if begin > 0 else 0, end + 1):
        previous, current = (odd, even) if row % 2 == 0 else (even, odd)
        y, target = first + 2 * row, row - 1 - begin + place
        filter_row(gray, y, smooth, derive, columns, upper)
        filter_row(gray, y + 1, smooth, derive, columns, lower)
        _join_bands(upper, lower, inverses, directions, bands)
        for n in range(8):
            for x in range(np.uint64(cols)):  # two columns added up, smoothed with the next two
                left = x + x
                current[n, x] = (bands[n, left] + bands[n, left + _ONE]) + (
                    bands[n, left + _TWO] + bands[n, left + _THREE]
                )
        if row > 0:
            for x in range(0, whole, COLUMNS):
                store_cells(previous, current, x, features, peaks, target)
            for x in range(whole, cols):
                most = np.uint32(0)
                for n in range(8):
                    value = previous[n, x] + current[n, x]
                    features[target, x % 2, x // 2, n] = value
                    most = max(most, bits_of(value))
                peaks[target, x % 2, x // 2] = most


@kernel
def build_feature_map(
    gray: Float32Array,
    smooth: Float32Array,
    derive: Float32Array,
    directions: Float32Array,
    features: Float32Array,
    peaks: UInt32Array,
) -> bool:
    """Fill a whole feature map, see `fill_feature_map`; whether there was memory for it."""
    buffers = new_row_buffers(gray.shape[1])
    has_memory = have_memory(buffers)
    if has_memory:
        rows = features.shape[0]
        fill_feature_map(gray, 0, 0, rows, smooth, derive, directions, buffers, features, peaks, 0)
    free_row_buffers(buffers)
    return has_memory


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


@allocating_kernel
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
        filter_row(gray, y, smooth, derive, columns, gradient)
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
