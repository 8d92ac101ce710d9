"""Which classes are taken for which, and what follows by class: precision and recall."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trainer.metrics import Interval, Labels, share_interval

__all__ = ["ClassFigures", "Confusion", "Mistake"]


@dataclass(frozen=True)
class ClassFigures:
    """How a class fares: its images, those of them that get its label, and all that get it."""

    label: str
    images: int
    right: int
    predicted: int

    @property
    def recall(self) -> float | None:
        """The share of its images that get its label; None without images."""
        return self.right / self.images if self.images else None

    @property
    def precision(self) -> float | None:
        """The share of the images with its label that are its own; None if no image gets it."""
        return self.right / self.predicted if self.predicted else None

    @cached_property
    def recall_interval(self) -> Interval | None:
        """Where the recall lies with 95 % confidence."""
        return share_interval(self.right, self.images) if self.images else None

    @cached_property
    def precision_interval(self) -> Interval | None:
        """Where the precision lies with 95 % confidence."""
        return share_interval(self.right, self.predicted) if self.predicted else None

    def counts_to_json(self) -> dict[str, object]:
        """The counts, of which all else follows."""
        return {"images": self.images, "right": self.right, "predicted": self.predicted}

    def to_json(self) -> dict[str, object]:
        """Counts, shares and intervals as plain JSON values."""
        return {
            **self.counts_to_json(),
            "recall": self.recall,
            "recall_interval": _listed(self.recall_interval),
            "precision": self.precision,
            "precision_interval": _listed(self.precision_interval),
        }


@dataclass(frozen=True)
class Mistake:
    """How many images of one class are taken for another one."""

    label: str
    predicted: str
    images: int


@dataclass(frozen=True)
class Confusion:
    """The confusion matrix: figures of every class, and the mistakes, most frequent first.

    `left_out` is how many images further mistakes have, where not all of these are kept.
    """

    classes: tuple[ClassFigures, ...]
    mistakes: tuple[Mistake, ...]
    left_out: int = 0

    @classmethod
    def of(cls, predicted: Labels, labels: Labels, names: Sequence[str]) -> "Confusion":
        """Of predicted and true labels (n,), which are places in `names`."""
        images, got = (np.bincount(found, minlength=len(names)) for found in (labels, predicted))
        right = np.bincount(labels[predicted == labels], minlength=len(names))
        columns = zip(names, images.tolist(), right.tolist(), got.tolist(), strict=True)
        wrong = predicted != labels
        pairs = Counter(zip(labels[wrong].tolist(), predicted[wrong].tolist(), strict=True))
        ordered = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
        return cls(
            tuple(ClassFigures(*column) for column in columns),
            tuple(Mistake(names[own], names[other], count) for (own, other), count in ordered),
        )

    @property
    def tested(self) -> tuple[ClassFigures, ...]:
        """The classes that have images here."""
        return tuple(each for each in self.classes if each.images)

    @property
    def untested(self) -> tuple[str, ...]:
        """The labels of the others."""
        return tuple(each.label for each in self.classes if not each.images)

    @property
    def weakest(self) -> tuple[ClassFigures, ...]:
        """The classes that have images here, those of the lowest recall first."""
        return tuple(sorted(self.tested, key=lambda each: each.right / each.images))

    @property
    def n_images(self) -> int:
        """All images."""
        return sum(each.images for each in self.classes)

    def mistakes_to_json(self, most: int | None = None) -> dict[str, dict[str, int]]:
        """The most frequent mistakes: for each label how many are taken for which other one."""
        document: dict[str, dict[str, int]] = {}
        for mistake in self.mistakes[:most]:
            document.setdefault(mistake.label, {})[mistake.predicted] = mistake.images
        return document

    @classmethod
    def from_json(cls, figures: Mapping[str, Any]) -> "Confusion | None":
        """What figures with counts of all classes tell; None for those without.

        A manifest has no counts of very many classes, and those of old ones have none.
        """
        if "classes" not in figures:
            return None
        classes = tuple(
            ClassFigures(label, each["images"], each["right"], each["predicted"])
            for label, each in figures["classes"].items()
        )
        places = {each.label: place for place, each in enumerate(classes)}
        mistakes = [
            Mistake(label, predicted, count)
            for label, row in figures["mistakes"].items()
            for predicted, count in row.items()
        ]
        mistakes.sort(key=lambda each: (-each.images, places[each.label], places[each.predicted]))
        wrong = sum(each.images - each.right for each in classes)
        return cls(classes, tuple(mistakes), wrong - sum(each.images for each in mistakes))


def _listed(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)
