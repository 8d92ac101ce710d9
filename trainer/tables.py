"""Tables of text and sections of a page, for the terminal and for RESULTS.md alike."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Table", "aligned", "in_place_of_section", "listed", "piped", "wrapped"]


@dataclass(frozen=True)
class Table:
    """Rows of as many cells as the header has; the first column and `words` align left."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""
    words: tuple[str, ...] = ()

    def aligns_left(self, column: int) -> bool:
        """Whether a column holds words, not numbers."""
        return not column or self.header[column] in self.words


def aligned(table: Table) -> list[str]:
    """The lines of a table for the terminal."""
    rows = [table.header, *table.rows]
    columns = range(len(table.header))
    widths = [max(len(row[column]) for row in rows) for column in columns]
    sides = ["<" if table.aligns_left(column) else ">" for column in columns]
    return ["  " + _padded(row, sides, widths).rstrip() for row in rows]


def _padded(row: Sequence[str], sides: Sequence[str], widths: Sequence[int]) -> str:
    cells = zip(row, sides, widths, strict=True)
    return "  ".join(f"{cell:{side}{width}}" for cell, side, width in cells)


def piped(table: Table) -> list[str]:
    """The lines of a table in Markdown."""
    rules = ["---" if table.aligns_left(i) else "---:" for i in range(len(table.header))]
    return [_pipes(table.header), f"|{'|'.join(rules)}|", *(_pipes(row) for row in table.rows)]


def _pipes(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def listed(lines: Sequence[str]) -> str:
    """Lines as a list in Markdown."""
    return "\n".join(f"- {line}" for line in lines)


def wrapped(text: str, width: int = 100) -> str:
    """Text in lines of at most `width` characters, words whole."""
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def in_place_of_section(page: str, section: str) -> str:
    """`page` with its section of the same heading replaced, or with it added at the end.

    The first line of `section` is its heading, of level two.
    """
    heading = re.escape(section.partition("\n")[0])
    old = re.compile(rf"^{heading}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if not old.search(page):
        return f"{page.rstrip()}\n\n{section}" if page.strip() else section
    replaced = old.sub(lambda _: f"{section}\n", page, count=1)
    return f"{replaced.rstrip()}\n"
