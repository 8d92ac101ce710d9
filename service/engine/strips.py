"""Strips of an image, or of a list of descriptors, that threads share among themselves.

Whoever comes first owns all rows; the others steal from it (`kernels/strips.py`).
"""

import numpy as np

from service.engine.kernels.strips import (
    COUNTERS,
    PIXEL_ROWS,
    TIMES,
    Strips,
    pack,
    set_counter,
)

__all__ = ["cut", "give_up", "parts", "show_rows", "times"]

# Descriptors that are taken at a time, at the least where there are several threads. With 256 a
# photograph took as long on two cores.
_LEAST = 512

# Descriptors in a band, which are taken at a time at the most, unless a row of the grid has more.
_BAND = 2048

_ALL_ROWS = 2**62


def cut(rows: int, cols: int, threads: int, pixel_rows: int = _ALL_ROWS) -> Strips:
    """A grid of descriptors for some threads, of whose image so many rows are there."""
    owned, counters = np.zeros(threads, np.int64), np.zeros(COUNTERS, np.int64)
    owned[0] = pack(0, rows)
    counters[PIXEL_ROWS] = pixel_rows
    band = max(_BAND // max(cols, 1), 1)
    least = band if threads == 1 else min(-(-_LEAST // max(cols, 1)), band)
    return Strips(owned, rows, least, band, counters)


def parts(strips: Strips) -> int:
    """How many threads can take rows at the same time."""
    return max(strips.rows // strips.least, 1)


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
