"""Rows that line up and fit, whatever stands in them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.terminal.columns import (
    Columns,
    display_width,
    fill,
    first_that_fit,
    printable,
    shorten,
)

words = st.text(max_size=40) | st.text("abc写真é한e\u0301", max_size=40)
widths = st.integers(0, 120)


@given(st.lists(st.tuples(words, words), min_size=1, max_size=4), st.lists(words), widths)
def test_rows_line_up_and_are_no_wider_than_the_terminal(
    names: list[tuple[str, str]], further: list[str], width: int
) -> None:
    cells = [(printable(image), printable(label)) for image, label in names]
    image, label = (max(display_width(row[column]) for row in cells) for column in (0, 1))
    columns = Columns.of(image, label, width or None)
    rows = [columns.row(*row, "100.0%", list(map(printable, further))) for row in cells]
    starts = {display_width(row[: row.index("100.0%")]) for row in rows}
    assert starts == {columns.image + columns.label + 4}
    assert not width or all(display_width(row) <= max(width, 24) for row in rows)


@given(words, widths)
def test_a_text_that_fits_stays_and_a_longer_one_keeps_both_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    assert display_width(short) <= width
    if display_width(text) <= width:
        assert short == text
    elif width:
        head, tail = short.split("…", 1) if "…" not in text else ("", "")
        assert text.startswith(head)
        assert text.endswith(tail)


@given(words)
def test_printable_text_can_be_written_and_moves_no_cursor(text: str) -> None:
    shown = printable(text)
    assert shown.encode().decode() == shown
    assert {unicodedata.category(c) for c in shown}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("abc", 3), ("写真", 4), ("e\u0301", 1), ("한", 2), ("ｶﾅ", 2), ("Ａ", 2)],
)
def test_display_width(text: str, width: int) -> None:
    assert display_width(text) == width
    assert display_width(fill(text, 7)) == 7


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("photos/2024/000123.jpg", 11, "phot…23.jpg"),
        ("写真写真.png", 8, "写….png"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_shorten(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (None, Columns(50, 17, None)),
        (200, Columns(50, 17, 121)),
        (80, Columns(29, 17, 22)),
        (50, Columns(23, 17, 0)),
        (10, Columns(7, 7, 0)),
    ],
)
def test_narrow_terminals_shorten_names_first_and_then_drop_further_labels(
    width: int | None, columns: Columns
) -> None:
    assert Columns.of(50, 17, width) == columns


@given(st.lists(st.text("ab,", min_size=1, max_size=5)), st.none() | st.integers(0, 30))
def test_the_longest_beginning_of_a_list_that_fits_is_taken(
    items: list[str], width: int | None
) -> None:
    beginnings = [", ".join(items[:count]) for count in range(len(items) + 1)]
    fitting = [text for text in beginnings if width is None or len(text) <= width]
    assert first_that_fit(items, width) == fitting[-1]
