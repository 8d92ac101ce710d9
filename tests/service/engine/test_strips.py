"""Strips cover everything once, large ones first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import strips
from service.engine.kernels.strips import PIXEL_ROWS

rows_and_cols = {"rows": st.integers(0, 2000), "cols": st.integers(1, 2000)}


@given(**rows_and_cols, threads=st.integers(1, 9), first=st.none() | st.integers(1, 2000))
def test_strips_cover_all_rows_once(rows: int, cols: int, threads: int, first: int | None) -> None:
    cut = strips.cut(rows, cols, threads, first)
    assert cut.bounds[0] == 0
    assert cut.bounds[-1] == rows
    sizes = np.diff(cut.bounds)
    assert (sizes > 0).all() or rows == 0
    assert strips.count(cut) == len(sizes)


@given(**rows_and_cols)
def test_a_band_is_as_many_whole_rows_as_stay_in_the_cache(rows: int, cols: int) -> None:
    band = strips.cut(rows, cols, 1).band
    assert band >= 1
    assert band * cols <= 2048 < (band + 1) * cols or band == 1


@given(**rows_and_cols, threads=st.integers(2, 9))
def test_strips_get_smaller_but_not_too_small(rows: int, cols: int, threads: int) -> None:
    sizes = np.diff(strips.cut(rows, cols, threads).bounds)
    assert (np.diff(sizes[:-1]) <= 0).all()
    assert (sizes[:-1] * cols >= 512).all()


@given(**rows_and_cols)
def test_one_thread_has_one_strip(rows: int, cols: int) -> None:
    assert strips.cut(rows, cols, 1).bounds.tolist() == ([0, rows] if rows else [0])


def test_the_first_strip_has_the_rows_that_are_there() -> None:
    cut = strips.cut(100, 200, 2, first=7, pixel_rows=33)
    assert cut.bounds[:2].tolist() == [0, 7]
    assert cut.counters[: PIXEL_ROWS + 1].tolist() == [0, 0, 33]


@pytest.mark.parametrize("threads", [1, 2])
def test_all_rows_are_there_unless_said(threads: int) -> None:
    assert strips.cut(100, 200, threads).counters[PIXEL_ROWS] >= 2**31


def test_rows_that_come_and_rows_that_never_come_are_told() -> None:
    cut = strips.cut(100, 200, 2, first=7, pixel_rows=33)
    strips.show_rows(cut, 60)
    assert cut.counters[PIXEL_ROWS] == 60
    strips.show_rows(cut)
    assert cut.counters[PIXEL_ROWS] >= 2**31
    strips.give_up(cut)
    assert cut.counters[PIXEL_ROWS] < 0
