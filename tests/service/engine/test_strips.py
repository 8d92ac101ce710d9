"""Threads share all rows, each of them once, whoever comes when."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import strips
from service.engine.kernels.strips import PIXEL_ROWS, Strips, new_owner, pack, take_rows

rows_and_cols = {"rows": st.integers(0, 2000), "cols": st.integers(1, 2000)}
# Which thread takes rows next; those that are not named any more are slow.
turns = st.lists(st.integers(0, 3), max_size=60)


def take_all(cut: Strips, order: Sequence[int]) -> list[tuple[int, int, int]]:
    """Thread, first row and end of all that is taken, in this order and then one after the other.

    A thread that finds nothing does not come again.
    """
    taken, owners, gone = list[tuple[int, int, int]](), dict[int, int](), set[int]()
    threads = range(len(cut.owned))
    for thread in [*order, *(thread for thread in threads for _ in range(cut.rows + 1))]:
        if thread not in threads or thread in gone:
            continue
        if thread not in owners:
            owners[thread] = new_owner(cut)
        begin, end = take_rows(cut, owners[thread])
        if begin == end:
            gone.add(thread)
        else:
            taken.append((thread, begin, end))
    return taken


@given(**rows_and_cols, threads=st.integers(1, 4), order=turns)
def test_every_row_is_taken_once(rows: int, cols: int, threads: int, order: list[int]) -> None:
    taken = take_all(strips.cut(rows, cols, threads), order)
    assert sorted(row for _, begin, end in taken for row in range(begin, end)) == list(range(rows))


@given(**rows_and_cols, threads=st.integers(1, 4), order=turns)
def test_what_is_taken_fits_a_band(rows: int, cols: int, threads: int, order: list[int]) -> None:
    cut = strips.cut(rows, cols, threads)
    assert all(end - begin <= cut.band for _, begin, end in take_all(cut, order))


@given(**rows_and_cols)
def test_a_band_is_as_many_whole_rows_as_stay_in_the_cache(rows: int, cols: int) -> None:
    band = strips.cut(rows, cols, 1).band
    assert band >= 1
    assert band * cols <= 2048 < (band + 1) * cols or band == 1


@given(**rows_and_cols)
def test_one_thread_takes_whole_bands_from_the_top(rows: int, cols: int) -> None:
    cut = strips.cut(rows, cols, 1)
    expected = [(0, row, min(row + cut.band, rows)) for row in range(0, rows, cut.band)]
    assert take_all(cut, []) == expected


def test_whoever_comes_later_steals_the_lower_half() -> None:
    cut = strips.cut(100, 256, 2)
    taken = take_all(cut, [0, 0, 1, 1, 0])
    # Bands of eight rows; of the 84 that are left, 42 are stolen.
    assert taken[:5] == [(0, 0, 8), (0, 8, 16), (1, 58, 66), (1, 66, 74), (0, 16, 24)]


def test_the_longest_strip_is_stolen_from() -> None:
    cut = strips.cut(100, 256, 3)
    cut.owned[:] = pack(90, 100), pack(20, 60), pack(0, 0)
    assert [new_owner(cut) for _ in range(3)] == [0, 1, 2]
    assert take_rows(cut, 2) == (40, 45)
    assert cut.owned.tolist() == [pack(90, 100), pack(20, 40), pack(45, 60)]


def test_rows_are_taken_few_at_a_time_where_few_are_left() -> None:
    cut = strips.cut(100, 256, 2)
    cut.owned[:] = pack(80, 100), pack(0, 0)
    sizes = [end - begin for thread, begin, end in take_all(cut, [0] * 100) if thread == 0]
    assert sizes == [5, 3, 3, 2, 2, 2, 3]


def test_too_few_rows_are_not_stolen() -> None:
    cut = strips.cut(100, 256, 2)
    cut.owned[:] = pack(97, 100), pack(0, 0)
    assert new_owner(cut) == 0
    begin, end = take_rows(cut, new_owner(cut))
    assert begin == end
    assert cut.owned[0] == pack(97, 100)


@pytest.mark.parametrize(("rows", "parts"), [(0, 1), (1, 1), (3, 1), (4, 2), (100, 50)])
def test_as_many_threads_can_work_as_there_are_parts(rows: int, parts: int) -> None:
    assert strips.parts(strips.cut(rows, 256, 2)) == parts


@pytest.mark.parametrize("threads", [1, 2])
def test_all_rows_are_there_unless_said(threads: int) -> None:
    assert strips.cut(100, 200, threads).counters[PIXEL_ROWS] >= 2**31


def test_rows_that_come_and_rows_that_never_come_are_told() -> None:
    cut = strips.cut(100, 200, 2, pixel_rows=33)
    assert cut.counters[PIXEL_ROWS] == 33
    strips.show_rows(cut, 60)
    assert cut.counters[PIXEL_ROWS] == 60
    strips.show_rows(cut)
    assert cut.counters[PIXEL_ROWS] >= 2**31
    strips.give_up(cut)
    assert cut.counters[PIXEL_ROWS] < 0
