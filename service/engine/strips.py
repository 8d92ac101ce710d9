"""Strips of an image, or of a list of descriptors, that threads take one after the other.

Large ones first, so that little is handed out, then smaller and smaller ones, so that no thread
waits long for the last. One thread has everything in one strip. Whoever takes a strip works on one
band of it after the other.
"""

from functools import lru_cache

import numpy as np

from service.engine.arrays import Int64Array, frozen
from service.engine.kernels.strips import COUNTERS, PIXEL_ROWS, TIMES, Strips, set_counter

__all__ = ["count", "cut", "give_up", "show_rows", "times"]

# Descriptors in a strip, at the least. A strip of an image computes six rows of cells that the
# next one computes again.
_SMALLEST = 512

# What a strip is of what is left, times the number of threads. With .8, and strips of 1024 at the
# least, a photograph took 1 to 2 % longer on two cores; with strips of 256 1 %.
_SHARE = 0.6

# Descriptors in a band, at the most, unless a row of the grid has more.
_BAND = 2048

_ALL_ROWS = 2**62


def cut(
    rows: int, cols: int, threads: int, first: int | None = None, pixel_rows: int = _ALL_ROWS
) -> Strips:
    """Strips of a grid of descriptors, of whose image so many rows are there.

    With `first`, the first strip has so many rows of the grid.
    """
    counters = np.zeros(COUNTERS, np.int64)
    counters[PIXEL_ROWS] = pixel_rows
    return Strips(_bounds(rows, cols, threads, first), max(_BAND // max(cols, 1), 1), counters)


@lru_cache(maxsize=32)
def _bounds(rows: int, cols: int, threads: int, first: int | None) -> Int64Array:
    bounds, smallest = [0], -(-_SMALLEST // max(cols, 1))
    if first is not None:
        bounds.append(min(first, rows))
    while (left := rows - bounds[-1]) > 0:
        size = left if threads == 1 else max(int(left * _SHARE / threads), smallest)
        bounds.append(bounds[-1] + (size if size + smallest <= left else left))
    return frozen(np.array(bounds, np.int64))


def count(strips: Strips) -> int:
    """How many strips there are, taken ones included."""
    return len(strips.bounds) - 1


def times(strips: Strips) -> list[int]:
    """Nanoseconds of describing, coding and pooling, those of all threads added up."""
    found: list[int] = strips.counters[TIMES:].tolist()
    return found


def show_rows(strips: Strips, pixel_rows: int | None = None) -> None:
    """Tell the threads how many rows of the image are there now; without a number, all."""
    set_counter(strips.counters, PIXEL_ROWS, _ALL_ROWS if pixel_rows is None else pixel_rows)


def give_up(strips: Strips) -> None:
    """Tell the threads that no more rows will come."""
    set_counter(strips.counters, PIXEL_ROWS, -1)
