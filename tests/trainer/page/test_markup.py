"""Elements whose text may be anything."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.html_pages import Element, parse
from trainer.page.markup import name, number, shortened_name, tag

ANYTHING = st.text(st.characters(exclude_categories=()), max_size=60)


def _read(markup: str) -> Element:
    (element,) = parse(f"<!doctype html>\n<html>{markup}</html>").children
    assert isinstance(element, Element)
    return element


@given(ANYTHING, ANYTHING)
def test_text_and_attributes_come_back_as_text_and_attributes(text: str, title: str) -> None:
    element = _read(tag("p", text, title=title))
    markup = tag("p", text, title=title)
    markup.encode()  # no surrogate is left
    assert element.name == "p"
    assert list(element.attributes) == ["title"]
    assert not list(element.elements())


def test_markup_is_not_escaped_twice_and_text_is() -> None:
    markup = tag("p", tag("b", "<i>"), "&", None, 3, class_="x", hidden=True, id=None)
    assert markup == '<p class="x" hidden><b>&lt;i&gt;</b>&amp;3</p>'


def test_bytes_that_are_not_utf8_and_marks_that_turn_text_around_are_shown() -> None:
    assert _read(name("caf\udce9")).text == "caf\\xe9"
    assert _read(name("photo\u202egpj.exe")).text == "photo\\u202egpj.exe"
    assert _read(name("\u05e9\u200f")).text == "\u05e9\u200f"  # Hebrew with its own mark


def test_long_names_lose_their_middle() -> None:
    assert shortened_name("x" * 80) == "x" * 80
    assert shortened_name("a" * 1000 + "b" * 1000) == "a" * 39 + "…" + "b" * 39


def test_coordinates_have_two_digits_at_most() -> None:
    assert [number(value) for value in (1.0, 0.333333, -20.0, 1e-9)] == ["1", "0.33", "-20", "0"]
