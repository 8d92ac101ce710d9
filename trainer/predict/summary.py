"""What a bulk classification tells at its end."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainer.predict.job import Job
from trainer.progress import duration_text

__all__ = ["Summary", "TableCounts", "summary_text"]

_SHOWN_LABELS = 10
_SHOWN_REASONS = 20

_NUMBER = re.compile(r"\d+")


@dataclass
class TableCounts:
    """What is in a table: rows, files that could not be read by their reasons, labels."""

    images: int = 0
    unknown: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)

    @property
    def unreadable(self) -> int:
        """How many files could not be read."""
        return self.problems.total()

    def add(self, other: "TableCounts") -> None:
        """Count the rows of another table, too."""
        self.images += other.images
        self.unknown += other.unknown
        self.problems.update(other.problems)
        self.labels.update(other.labels)

    def add_problem(self, sentence: str, files: int = 1) -> None:
        """Count files with a problem; sentences that differ in their numbers are one reason."""
        self.problems[_NUMBER.sub("…", sentence)] += files


@dataclass(frozen=True)
class Summary:
    """Counts of the whole table; `classified` images of it took the `seconds` of this run."""

    job: Job
    counts: TableCounts
    classified: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Images a second of this run; 0 if there was nothing left to do."""
        return self.classified / self.seconds if self.classified else 0.0

    def to_json(self) -> dict[str, object]:
        """All of it as plain JSON values."""
        model = self.job.model
        return {
            "table": str(self.job.out),
            "model": {"name": model.name, "version": model.version, "digest": model.digest},
            "images": self.counts.images,
            "classified": self.classified,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.per_second, 2),
            "unreadable": self.counts.unreadable,
            "problems": dict(self.counts.problems.most_common()),
            "unknown": self.counts.unknown,
            "labels": dict(self.counts.labels.most_common()),
        }


def summary_text(summary: Summary) -> str:
    """The same for people."""
    return "\n".join(_lines(summary))


def _lines(summary: Summary) -> Iterator[str]:
    counts, model = summary.counts, summary.job.model
    yield f"{counts.images} images by {model.name} version {model.version}: {summary.job.out}"
    if summary.classified < counts.images:
        yield f"{counts.images - summary.classified} of them were there from an earlier run"
    if summary.classified:
        duration = duration_text(summary.seconds)
        yield f"{summary.classified} classified in {duration}, {summary.per_second:.1f} a second"
    if counts.unknown:
        yield f"{counts.unknown} look like none of the model's classes"
    if counts.labels:
        labels = (f"{label} {n}" for label, n in counts.labels.most_common(_SHOWN_LABELS))
        yield f"most frequent labels: {', '.join(labels)}"
    if counts.unreadable:
        yield f"{counts.unreadable} cannot be read:"
    for reason, n in counts.problems.most_common(_SHOWN_REASONS):
        yield f"  {n}  {reason}"
    if len(counts.problems) > _SHOWN_REASONS:
        yield f"  and {len(counts.problems) - _SHOWN_REASONS} more reasons; --json has all of them"
