"""Scores to labels: the best few, how probable they are, and whether any of them fits the image."""

from dataclasses import dataclass

import numpy as np

from service.engine.arrays import BoolArray, Float32Array, Float64Array, frozen
from service.engine.kernels.ranking import find_best

__all__ = ["Prediction", "ScoredImage", "are_known", "confidences", "rank"]


@dataclass(frozen=True)
class Prediction:
    """One label and how probable it is."""

    label: str
    probability: float


@dataclass(frozen=True)
class ScoredImage:
    """Scores (n_labels,) of an image, and whether it shows nothing but one colour."""

    scores: Float32Array
    is_blank: bool


def rank(
    scores: Float32Array, labels: tuple[str, ...], scale: float, top_k: int
) -> tuple[Prediction, ...]:
    """The `top_k` best labels, best first; ties go to the lowest index."""
    count = min(top_k, len(scores))
    best, chances = np.empty(count, np.int64), np.empty(count)
    # After the kernels of an image, little of Python and NumPy is in the caches: their functions
    # took four times as long.
    find_best(frozen(scores), scale, best, chances)
    pairs = zip(best.tolist(), chances.tolist(), strict=True)
    return tuple(Prediction(labels[i], chance) for i, chance in pairs)


def confidences(scores: Float32Array | Float64Array, are_blank: BoolArray | bool) -> Float64Array:  # noqa: FBT001
    """How much images (…, n_labels) look like one of the classes: their best scores.

    On Caltech 101 the best score tells others from its classes as well as the best of ten simple
    statistics: area under the ROC curve .91 for clutter, .87 for scenes, .93 for photographs of
    Berkeley; its distance from the mean has .91, .87 and .93, from the second .90, .87 and .90. If
    examples of others were learned from, it is better: .99 for two classes of objects and 150
    photographs of clutter, where the distance from the mean has .96. Scores of a blank image are
    little but the bias of the classifier, which says nothing of the image.
    """
    best = scores.max(axis=-1).astype(np.float64)
    return np.where(are_blank, -np.inf, best)


def are_known(
    scores: Float32Array | Float64Array,
    are_blank: BoolArray | bool,  # noqa: FBT001
    threshold: float | None,
) -> BoolArray:
    """Which images (…, n_labels) look like one of the classes; without a threshold, all do."""
    if threshold is None:
        return np.ones(scores.shape[:-1], np.bool_)
    known: BoolArray = confidences(scores, are_blank) >= threshold
    return known
