"""Atoms as glyphs, drawn as the service's page does it (`service/web/glyphs.js`).

Four by four cells, in each a line for every one of the eight directions of the gradient, as long
as the entry is large: positive ones solid, negative ones dashed.
"""

import math

import numpy as np

from service.engine.arrays import Float32Array
from trainer.page.markup import Markup, number, tag

__all__ = ["glyph"]

_CELLS = 4
_DIRECTIONS = 8
_CELL = 24
_SIDE = _CELLS * _CELL
_SHORTEST = 0.7


def glyph(numbers: Float32Array, title: str) -> Markup:
    """An SVG of an atom (128,)."""
    return tag(
        "svg",
        tag("path", d=_frame(), class_="glyph-frame"),
        tag("path", d=_lines(numbers, 1), class_="glyph-positive"),
        tag("path", d=_lines(numbers, -1), class_="glyph-negative"),
        viewBox=f"0 0 {_SIDE} {_SIDE}",
        class_="glyph",
        role="img",
        aria_label=title,
    )


def _frame() -> str:
    places = [cell * _CELL for cell in range(1, _CELLS)]
    return "".join(f"M{place} 0V{_SIDE}M0 {place}H{_SIDE}" for place in places)


def _lines(numbers: Float32Array, sign: int) -> str:
    """The lines of one sign; the longest of both signs reaches the edge of its cell."""
    most = max(float(np.abs(numbers).max()), 1e-9)
    lengths = sign * numbers.astype(np.float64) * _CELL / 2 / most
    return "".join(
        _line(int(place), float(lengths[place])) for place in np.flatnonzero(lengths >= _SHORTEST)
    )


def _line(place: int, length: float) -> str:
    cell, direction = divmod(place, _DIRECTIONS)
    row, column = divmod(cell, _CELLS)
    angle = direction * 2 * math.pi / _DIRECTIONS
    start = f"M{number((column + 0.5) * _CELL)} {number((row + 0.5) * _CELL)}"
    return f"{start}l{number(length * math.cos(angle))} {number(length * math.sin(angle))}"
