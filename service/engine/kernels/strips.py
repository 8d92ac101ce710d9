"""Strips that threads take, and rows that they wait for while an image is still being decoded."""

from typing import NamedTuple

import numpy as np

from service.engine.arrays import Float32Array, Int64Array, UInt8Array, frozen
from service.engine.compiling import kernel, part
from service.engine.kernels.system import add_to, let_others_run, peek, read, write

__all__ = [
    "COUNTERS",
    "DONE_STRIPS",
    "NEXT_STRIP",
    "NOT_DECODING",
    "PIXEL_ROWS",
    "TAKEN_LAYERS",
    "TIMES",
    "Decoding",
    "Strips",
    "count_as_done",
    "set_counter",
    "take_next",
    "wait_for_all",
    "wait_for_rows",
]

# Counters that threads share: the strip to be taken next, how many strips are done, how many rows
# of the image are there (fewer than none: they will not come), how many threads have taken a strip,
# and nanoseconds of describing, coding and pooling, of all threads together.
NEXT_STRIP, DONE_STRIPS, PIXEL_ROWS, TAKEN_LAYERS, TIMES = 0, 1, 2, 3, 4
COUNTERS = TIMES + 3

# How often a thread that waits asks before it begins to sleep in between: about a millisecond.
_IMPATIENT_TURNS = 5000

# Pixels of a row that are looked at, one in so many.
_PEEKED = 16


class Strips(NamedTuple):
    """bounds (n + 1,) of n strips, in rows of the grid, and the counters that threads share.

    `band` rows of a strip are worked on at a time.
    """

    bounds: Int64Array
    band: int
    counters: Int64Array


class Decoding(NamedTuple):
    """pixels (h, w) that a decoder fills from the top, of zeros at first, and gray (h, w) of them.

    Whoever waits for rows sees them come, and fills their grey values itself. That is for
    processors whose stores are seen in their order: where a row has begun, those above it are
    complete. Others are given pixels of no rows, and wait until they are told.
    """

    pixels: UInt8Array
    gray: Float32Array
    scale: float


NOT_DECODING = Decoding(frozen(np.zeros((0, 0), np.uint8)), np.zeros((0, 0), np.float32), 1.0)
"""Of an image whose rows are there, or told of."""


@part
def take_next(strips: Strips) -> int:
    """The number of a strip that nobody has taken; there may be none of that number."""
    return add_to(strips.counters, NEXT_STRIP, 1)


@part
def count_as_done(strips: Strips) -> None:
    """One more strip is done; whoever sees it sees what was written for it."""
    add_to(strips.counters, DONE_STRIPS, 1)


@part
def wait_for_all(strips: Strips) -> None:
    """Wait until all strips are done."""
    turns, count = 0, strips.bounds.shape[0] - 1
    while read(strips.counters, DONE_STRIPS) < count:
        let_others_run(turns > _IMPATIENT_TURNS)
        turns += 1


@part
def wait_for_rows(strips: Strips, decoding: Decoding, first: int, end: int) -> bool:
    """Wait until rows `first` to `end` of the image are there; whether they will ever be."""
    there, turns = read(strips.counters, PIXEL_ROWS), 0
    while 0 <= there < end:
        if _has_begun(decoding.pixels, end):
            _fill_rows(decoding, first, end)
            return True
        let_others_run(turns > _IMPATIENT_TURNS)
        there, turns = read(strips.counters, PIXEL_ROWS), turns + 1
    return there >= 0


@part
def _has_begun(pixels: UInt8Array, row: int) -> bool:
    """Whether a row is being written, or has been. Of one that is black, nobody can tell."""
    if row < pixels.shape[0]:
        for x in range(0, pixels.shape[1], _PEEKED):
            if peek(pixels, row, x) != 0:
                return True
    return False


@part
def _fill_rows(decoding: Decoding, first: int, end: int) -> None:
    """Grey values of some rows, the same that any other thread fills in."""
    scale = np.float32(decoding.scale)
    for y in range(first, end):
        for x in range(decoding.pixels.shape[1]):
            decoding.gray[y, x] = np.float32(decoding.pixels[y, x]) * scale


@kernel
def set_counter(counters: Int64Array, place: int, number: int) -> None:
    """Let a counter be a number; whoever sees it sees all that was written before."""
    write(counters, place, number)
