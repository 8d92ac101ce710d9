"""HTML by small functions: whatever is not markup already is escaped.

Names of files and classes are anybody's. They are escaped here, in the one place that makes
elements, so that no section of the page can forget to.
"""

import re
from html import escape

from trainer.data.image_files import printable

__all__ = ["Child", "Markup", "escaped", "name", "number", "shortened_name", "tag"]

_EMPTY_ELEMENTS = frozenset({"img", "meta"})

# They turn around what follows them, so that one name reads as another.
_DIRECTIONAL = re.compile("[\u202a-\u202e\u2066-\u2069]")
_LONGEST_NAME = 80


class Markup(str):
    """HTML, whose special characters mean what they say."""

    __slots__ = ()


Child = str | int | None
Attribute = str | float | bool | None


def escaped(text: Child) -> Markup:
    """Text as HTML; markup is itself, None is nothing."""
    if isinstance(text, Markup):
        return text
    return Markup("" if text is None else escape(_visible(str(text))))


def tag(element: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element. `class_` stands for class, other underscores for hyphens.

    An attribute that is True has no value, one that is None or False is left out.
    """
    start = "".join(_attribute(key, value) for key, value in attributes.items())
    if element in _EMPTY_ELEMENTS:
        return Markup(f"<{element}{start}>")
    return Markup(f"<{element}{start}>{''.join(map(escaped, children))}</{element}>")


def name(text: str) -> Markup:
    """A name of a file or class, cut if it is very long, that turns nothing around it."""
    return tag("bdi", shortened_name(text))


def shortened_name(text: str, longest: int = _LONGEST_NAME) -> str:
    """The first and last characters of a long name."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def number(value: float) -> str:
    """A coordinate with no more digits than anybody sees."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    named = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {named}"
    text = number(value) if isinstance(value, float) else str(value)
    return f' {named}="{escape(_visible(text))}"'


def _visible(text: str) -> str:
    return _DIRECTIONAL.sub(lambda match: f"\\u{ord(match[0]):04x}", printable(text))
