"""What several sections are made of: sections, tables, numbers in words."""

from collections.abc import Iterable, Sequence

from trainer.metrics import Interval
from trainer.page.markup import Child, Markup, tag

__all__ = ["barred", "between", "duration", "facts", "gigabytes", "section", "share", "table"]

_PER_CENT = "\N{NO-BREAK SPACE}%"


def section(key: str, title: str, *children: Child) -> Markup:
    """A part of the page that can be linked to."""
    return tag("section", tag("h2", title, id=f"{key}-title"), *children, id=key)


def table(caption: str, head: Sequence[Child], rows: Iterable[Sequence[Child]]) -> Markup:
    """A table whose rows are named by their first cells; it scrolls by itself."""
    body = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:]))
        for row in rows
    ]
    made = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head))),
        tag("tbody", *body),
    )
    return tag("div", made, class_="scrolled", role="region", aria_label=caption, tabindex="0")


def facts(caption: str, pairs: Iterable[tuple[str, Child]]) -> Markup:
    """A table of names and values."""
    rows = [tag("tr", tag("th", key, scope="row"), tag("td", value)) for key, value in pairs]
    return tag("table", tag("caption", caption), tag("tbody", *rows), class_="facts")


def barred(text: str, bar: Markup) -> Markup:
    """A cell with words and a small picture of them."""
    return tag("div", tag("span", text), bar, class_="barred")


def share(value: float) -> str:
    """A share in per cent."""
    return f"{100 * value:.1f}{_PER_CENT}"


def between(interval: Interval) -> str:
    """Where a share lies with 95 % confidence."""
    return f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f}{_PER_CENT}"


def duration(seconds: float) -> str:
    """Seconds, or minutes where there are many."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def gigabytes(count: float | None) -> str:
    """Memory in words."""
    return "unknown" if count is None else f"{count / 1e9:.2f} GB"
