"""What `check` prints for people."""

from collections.abc import Iterator, Sequence

from trainer.check import MOST_IMBALANCE, TINY, CheckReport
from trainer.cost import cost_text
from trainer.data.dataset import shortened
from trainer.tables import Table, aligned

__all__ = ["check_text"]

_SHOWN = 20

_KINDS = {
    "nested": "in folders below that of their class",
    "linked": "by way of links",
    "heic": "HEIC",
    "large": "so large that they are read only at a reduced size",
}


def check_text(report: CheckReport) -> str:
    """Counts first, then what is odd, then what a fit will take."""
    return "\n".join([*_counts(report), *_oddities(report), "", _cost(report)])


def _counts(report: CheckReport) -> Iterator[str]:
    images, readable = sum(report.images.values()), sum(report.readable.values())
    yield f"{report.root}: {images} images of {len(report.images)} classes, {readable} can be read"
    rows: list[tuple[str, ...]] = [
        (label, str(count), str(report.readable[label])) for label, count in report.images.items()
    ]
    yield from aligned(Table("", ("class", "images", "readable"), rows))
    kinds = [f"{count} {_KINDS[kind]}" for kind, count in report.kinds.items() if count]
    if kinds:
        yield from ("", f"among them {', '.join(kinds)}")


def _oddities(report: CheckReport) -> Iterator[str]:
    for note in report.notes:
        yield from ("", note)
    unreadable = [f"{name}: {reason}" for name, reason in report.unreadable]
    yield from _listed("files that cannot be read", unreadable)
    yield from _listed("groups of files with the same bytes", _joined(report.identical))
    yield from _listed(
        "groups of images that look nearly the same (bursts, crops, copies)",
        _joined(report.similar),
    )
    yield from _listed("of these groups, in several classes", _joined(report.in_several_classes))
    yield from _listed(f"tiny images, under {TINY} pixels a side", report.tiny)
    if report.imbalance > MOST_IMBALANCE:
        yield from ("", _imbalance(report))
    if not report.can_be_fitted:
        yield from ("", "fewer than two classes have an image that can be read: a fit needs two")


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from ("", f"{title}: {len(lines)}")
        yield from (f"  {line}" for line in lines[:_SHOWN])
        if len(lines) > _SHOWN:
            yield f"  and {len(lines) - _SHOWN} more; --json has all of them"


def _joined(groups: Sequence[Sequence[str]]) -> list[str]:
    return [shortened(group) for group in groups]


def _imbalance(report: CheckReport) -> str:
    populated = {label: count for label, count in report.readable.items() if count}
    smallest, *_, largest = sorted(populated, key=populated.__getitem__)
    return (
        f"classes differ in size: {largest} has {populated[largest]} images, {smallest} "
        f"{populated[smallest]}"
    )


def _cost(report: CheckReport) -> str:
    return f"a fit with default settings takes {cost_text(report.cost)}"
