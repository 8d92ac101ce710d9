"""Columns of text that line up on a terminal, whatever script their words are written in."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

__all__ = ["GAP", "Columns", "display_width", "fill", "first_that_fit", "printable", "shorten"]

GAP = "  "
_ELLIPSIS = "…"
_PROBABILITY = len("100.0%")
# Of what is left beside label and probability, names leave this to further labels.
_FURTHER = 22
_LEAST_FURTHER = 12
_LEAST_WIDTH = 24


@dataclass(frozen=True)
class Columns:
    """The widths of image, label and further labels; a width of None has no limit, 0 is no column.

    The probability between label and further labels always has its six characters.
    """

    image: int
    label: int
    further: int | None

    @classmethod
    def of(cls, images: int, labels: int, width: int | None) -> "Columns":
        """Columns within `width` for images and labels that need so much at most.

        Without a width, which a file has not, nothing is shortened.
        """
        if width is None:
            return cls(images, labels, None)
        room = max(width, _LEAST_WIDTH) - _PROBABILITY - 2 * len(GAP)
        label = min(labels, room // 2)
        room -= label
        image = min(images, max(room - _FURTHER - len(GAP), room // 2))
        further = room - image - len(GAP)
        if further < _LEAST_FURTHER:
            return cls(min(images, room), label, 0)
        return cls(image, label, further)

    def row(self, image: str, label: str, probability: str, further: Sequence[str]) -> str:
        """One row; as many of the further labels as fit, each whole."""
        cells = [
            fill(shorten(image, self.image), self.image),
            fill(shorten(label, self.label), self.label),
            probability.rjust(_PROBABILITY),
            first_that_fit(further, self.further),
        ]
        return GAP.join(cells).rstrip()


def printable(text: str) -> str:
    """The text in composed characters, with a mark for each that a terminal would obey or lose."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or unicodedata.category(c) == "Zs" else "\ufffd"
        for c in unicodedata.normalize("NFC", text)
    )


def display_width(text: str) -> int:
    """How many columns a terminal takes for a text: Chinese characters two, accents none."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, width: int) -> str:
    """The text in at most `width` columns; one that is longer loses its middle.

    Of file names, both ends tell more, the last one most: folder, class and number.
    """
    if display_width(text) <= width:
        return text
    if width < 1:
        return ""
    tail = _beginning(text[::-1], 2 * (width - 1) // 3)[::-1]
    return _beginning(text, width - 1 - display_width(tail)) + _ELLIPSIS + tail


def _beginning(text: str, width: int) -> str:
    """The first characters that fit into `width` columns."""
    taken = 0
    for number, character in enumerate(text):
        taken += _width(character)
        if taken > width:
            return text[:number]
    return text


def fill(text: str, width: int) -> str:
    """The text with spaces behind it, up to `width` columns."""
    return text + " " * (width - display_width(text))


def first_that_fit(items: Sequence[str], width: int | None) -> str:
    """The first items, separated by commas, that fit into `width` columns together."""
    text = ", ".join(items)
    if width is None or display_width(text) <= width:
        return text
    ends = accumulate(display_width(item) + len(", ") for item in items)
    return ", ".join(item for item, end in zip(items, ends, strict=True) if end <= width + 2)
