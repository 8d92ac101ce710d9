"""The confusion matrix to look at: a table of few classes, a picture of many."""

import math
from collections.abc import Iterator

from trainer.confusion import Confusion
from trainer.page.markup import Markup, name, shortened_name, tag

__all__ = ["confusion_matrix"]

_MOST_IN_TABLE = 12
_MOST_UPRIGHT = 6
_MOST_WITH_COUNTS = 30
_MOST_WITH_LABELS = 150
# Of which every one takes 150 to 400 bytes of the page.
_MOST_CELLS = 1500
# Shades of a cell, by its share of the row.
_SHADES = 10

_SIDE = 960
_FAINTEST = 0.25
_LONGEST_LABEL = 20


def confusion_matrix(confusion: Confusion) -> Markup:
    """True classes down, given labels across; each row is shaded by its shares."""
    if len(confusion.classes) <= _MOST_IN_TABLE:
        return _scrolled(_table(confusion), "Confusion matrix")
    picture = _scrolled(_picture(confusion), "Confusion matrix")
    if len(confusion.tested) + len(confusion.mistakes) <= _MOST_CELLS:
        return picture
    return tag("div", picture, tag("p", "The rarest mistakes are not drawn.", class_="muted"))


def _scrolled(content: Markup, title: str) -> Markup:
    """A region that can be scrolled, by keys too, so that the page itself need not be."""
    return tag("div", content, class_="scrolled", role="region", aria_label=title, tabindex="0")


def _counts(confusion: Confusion) -> dict[tuple[str, str], int]:
    counts = {(each.label, each.predicted): each.images for each in confusion.mistakes}
    return counts | {(each.label, each.label): each.right for each in confusion.classes}


def _table(confusion: Confusion) -> Markup:
    labels = [each.label for each in confusion.classes]
    turned = "turned" if len(labels) > _MOST_UPRIGHT else None
    head = [tag("th", tag("span", name(label)), scope="col", class_=turned) for label in labels]
    corner = tag("td", tag("span", "true class ↓ label →", class_="muted"))
    counts = _counts(confusion)
    rows = [
        tag(
            "tr",
            tag("th", name(each.label), scope="row"),
            *(
                _cell(counts.get((each.label, label), 0), each.images, own=label == each.label)
                for label in labels
            ),
        )
        for each in confusion.classes
    ]
    return tag(
        "table",
        tag("caption", "How many images of each class get which label"),
        tag("thead", tag("tr", corner, *head)),
        tag("tbody", *rows),
        class_="matrix",
    )


def _cell(count: int, images: int, *, own: bool) -> Markup:
    shade = math.ceil(_SHADES * count / images) if images else 0
    kind = f"{'right' if own else 'wrong'}-{shade}" if count else "empty"
    return tag("td", str(count) if count else "·", class_=kind)


def _picture(confusion: Confusion) -> Markup:
    count = len(confusion.classes)
    side = min(28.0, max(2.0, _SIDE / count))
    with_labels = count <= _MOST_WITH_LABELS
    longest = max(len(shortened_name(each.label, _LONGEST_LABEL)) for each in confusion.classes)
    margin = 1 + 0.5 * longest if with_labels else 1
    width = round((count + margin + 0.5) * side)
    whole = count + margin + 0.5
    parts = [
        tag("rect", x=0, y=0, width=count, height=count, class_="sheet"),
        *_cells(confusion),
        *(_labels(confusion) if with_labels else ()),
    ]
    return tag(
        "svg",
        *parts,
        viewBox=f"{-margin} {-margin} {whole} {whole}",
        width=width,
        height=width,
        class_="matrix-picture",
        role="img",
        aria_label=f"Confusion matrix of {count} classes; the table of mistakes has its largest "
        "entries as text",
    )


def _cells(confusion: Confusion) -> Iterator[Markup]:
    """The diagonal, and the most frequent mistakes."""
    places = {each.label: place for place, each in enumerate(confusion.classes)}
    images = {each.label: each.images for each in confusion.classes}
    diagonal = [(each.label, each.label, each.right) for each in confusion.tested if each.right]
    wrong = [(each.label, each.predicted, each.images) for each in confusion.mistakes]
    for label, predicted, count in [*diagonal, *wrong][:_MOST_CELLS]:
        x, y = places[predicted], places[label]
        share = count / images[label]
        own, other = (shortened_name(each, _LONGEST_LABEL) for each in (label, predicted))
        title = f"{own}: {count} of {images[label]}" + ("" if x == y else f" taken for {other}")
        yield tag(
            "rect",
            tag("title", title),
            x=x,
            y=y,
            width=1,
            height=1,
            class_="right" if x == y else "wrong",
            fill_opacity=_FAINTEST + (1 - _FAINTEST) * share,
        )
        if len(places) <= _MOST_WITH_COUNTS:
            yield tag("text", str(count), x=x + 0.5, y=y + 0.68, class_="count-text")


def _labels(confusion: Confusion) -> Iterator[Markup]:
    for place, each in enumerate(confusion.classes):
        label, middle = shortened_name(each.label, _LONGEST_LABEL), place + 0.72
        yield tag("text", label, x=-0.3, y=middle, text_anchor="end")
        yield tag("text", label, x=0.3, y=middle, transform="rotate(-90)")
