"""Strips that threads own, take bands of and steal from, and rows that they wait for.

A strip is some rows of the grid, one after the other. Whoever owns it takes a few rows at a time
from its top, which share pixels with those just before; whoever has none left steals the lower
half of the longest. So both are done at the same time whatever slows one of them down, and few
rows are computed twice.
"""

from typing import NamedTuple

import numpy as np

from service.engine.arrays import Float32Array, Int64Array, UInt8Array, frozen
from service.engine.compiling import kernel, part
from service.engine.kernels.system import add_to, let_others_run, peek, read, replace, write

__all__ = [
    "COUNTERS",
    "DONE_ROWS",
    "NOT_DECODING",
    "PIXEL_ROWS",
    "TAKEN_LAYERS",
    "TIMES",
    "Decoding",
    "Strips",
    "count_as_done",
    "new_owner",
    "pack",
    "set_counter",
    "take_rows",
    "wait_for_all",
    "wait_for_rows",
]

# Counters that threads share: how many threads there are, how many rows of the grid are done, how
# many rows of the image are there (fewer than none: they will not come), how many threads have
# taken rows, and nanoseconds of describing, coding and pooling, of all threads together.
_OWNERS, DONE_ROWS, PIXEL_ROWS, TAKEN_LAYERS, TIMES = 0, 1, 2, 3, 4
COUNTERS = TIMES + 3

# What an owner takes of its strip at a time, at the most: one part in so many.
_PARTS = 4

# How often a thread that waits asks before it begins to sleep in between: about a millisecond.
_IMPATIENT_TURNS = 5000

# Pixels of a row that are looked at, one in so many.
_PEEKED = 16

# Two numbers of rows make one of 64 bits.
_BITS, _ROWS = 32, 2**32 - 1


class Strips(NamedTuple):
    """A strip for each thread that may come, the first one having all `rows` of the grid at first.

    owned (threads,) are strips, packed. `least` to `band` rows are taken at a time.
    """

    owned: Int64Array
    rows: int
    least: int
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


def pack(begin: int, end: int) -> int:
    """The strip of rows `begin` to `end`, as one number."""
    return begin << _BITS | end


_pack = part(pack)


@part
def new_owner(strips: Strips) -> int:
    """The number of a thread that has come. The first one owns all rows."""
    return add_to(strips.counters, _OWNERS, 1)


@part
def take_rows(strips: Strips, own: int) -> tuple[int, int]:
    """The next rows for a thread, from its strip or a stolen one; none if others have the rest."""
    while True:
        strip = read(strips.owned, own)
        begin, end = strip >> _BITS, strip & _ROWS
        if begin < end:
            size = min(max((end - begin) // _PARTS, strips.least), strips.band)
            if end - begin - size < strips.least:
                size = min(end - begin, strips.band)
            if replace(strips.owned, own, strip, _pack(begin + size, end)):
                return begin, begin + size
        elif not _steal(strips, own):
            return end, end


@part
def _steal(strips: Strips, own: int) -> bool:
    """Let a thread own the lower half of the longest strip; false if none is long enough."""
    while True:
        most, longest = 0, 0
        for other in range(strips.owned.shape[0]):
            strip = read(strips.owned, other)
            left = (strip & _ROWS) - (strip >> _BITS)
            if left > most:
                most, longest = left, other
        if most < 2 * strips.least:
            return False
        strip = read(strips.owned, longest)
        begin, end = strip >> _BITS, strip & _ROWS
        middle = begin + (end - begin) // 2
        # No two strips are ever alike, so that one which was replaced meanwhile is noticed.
        if begin < middle and replace(strips.owned, longest, strip, _pack(begin, middle)):
            write(strips.owned, own, _pack(middle, end))
            return True


@part
def count_as_done(strips: Strips, rows: int) -> None:
    """So many more rows are done; whoever sees it sees what was written for them."""
    add_to(strips.counters, DONE_ROWS, rows)


@part
def wait_for_all(strips: Strips) -> None:
    """Wait until all rows are done."""
    turns = 0
    while read(strips.counters, DONE_ROWS) < strips.rows:
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
