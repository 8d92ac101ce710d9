"""Figures of classifiers: accuracy by class, log loss and calibration error.

`scores` are (n, n_labels), `labels` (n,); `scale` is the factor on the scores of which
probabilities are the softmax.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from service.engine.probability import probabilities

__all__ = [
    "Interval",
    "Labels",
    "ReliabilityBin",
    "area_under_roc",
    "calibration_error",
    "class_accuracies",
    "expected_calibration_error",
    "log_loss",
    "mean_class_accuracy",
    "mean_class_accuracy_interval",
    "reliability",
    "share_interval",
]

Labels = npt.NDArray[np.int64]
Interval = tuple[float, float]

_BINS = 15
# Of the normal distribution, between which 95 % lie.
_DEVIATIONS = 1.959963984540054


def mean_class_accuracy(predicted: Labels, labels: Labels) -> float:
    """The mean of the classes' accuracies, the metric of the paper's tables."""
    return float(class_accuracies(predicted, labels).mean())


def class_accuracies(predicted: Labels, labels: Labels) -> Float64Array:
    """The share of right predictions for each label that occurs in `labels`, in order.

    That is scikit-learn's recall, which takes two to four seconds to be loaded.
    """
    _, places = np.unique(labels, return_inverse=True)
    return np.asarray(np.bincount(places, predicted == labels) / np.bincount(places))


def share_interval(right: int, count: int) -> Interval:
    """Where the true share lies with 95 % confidence, if `right` of `count` were (Wilson 1927).

    SciPy has it only beside the probability of a test, which takes a millisecond a class.
    """
    share, squared = right / count, _DEVIATIONS**2 / count
    width = _DEVIATIONS * math.sqrt((share * (1 - share) + squared / 4) / count)
    centre, whole = share + squared / 2, 1 + squared
    low = (centre - width) / whole if right else 0.0  # what rounding leaves is nothing
    high = (centre + width) / whole if right < count else 1.0
    return low, high


def mean_class_accuracy_interval(predicted: Labels, labels: Labels) -> Interval:
    """Where the mean of the classes' accuracies lies with 95 % confidence.

    The classes' errors are independent. The variance of each is Laplace's, of one right and one
    wrong image more: a class without an error is no proof that there are none.
    """
    accuracies = class_accuracies(predicted, labels)
    counts = np.unique(labels, return_counts=True)[1]
    shares = (accuracies * counts + 1) / (counts + 2)
    width = _DEVIATIONS * np.sqrt((shares * (1 - shares) / counts).sum()) / len(counts)
    centre = accuracies.mean()
    return max(0.0, float(centre - width)), min(1.0, float(centre + width))


def log_loss(scores: Float32Array | Float64Array, labels: Labels, scale: float) -> float:
    """The mean of −log of the right labels' probabilities."""
    chosen = probabilities(scores, scale)[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(chosen, 1e-300)).mean())


@dataclass(frozen=True)
class ReliabilityBin:
    """Images whose best label has a probability from `low` to `high`.

    `confidence` is the mean of these probabilities, `right` how many of the labels are right.
    """

    low: float
    high: float
    images: int
    right: int
    confidence: float

    @property
    def accuracy(self) -> float:
        """The share of right labels; where probabilities are true it is the confidence."""
        return self.right / self.images


def reliability(
    scores: Float32Array | Float64Array, labels: Labels, scale: float
) -> tuple[ReliabilityBin, ...]:
    """Images in 15 bins of equal width by the probability of their best label; no empty ones."""
    chances = probabilities(scores, scale)
    top = chances.max(axis=1)
    right = chances.argmax(axis=1) == labels
    bins = np.minimum((top * _BINS).astype(np.int64), _BINS - 1)
    counts, sums, hits = (
        np.bincount(bins, weights=weights, minlength=_BINS) for weights in (None, top, right)
    )
    return tuple(
        ReliabilityBin(
            number / _BINS,
            (number + 1) / _BINS,
            int(counts[number]),
            int(hits[number]),
            float(sums[number] / counts[number]),
        )
        for number in np.flatnonzero(counts).tolist()
    )


def expected_calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """The mean difference of confidence and accuracy, a bin counted as often as it has images.

    That is the measure of Guo and others 2017.
    """
    differences = sum(each.images * abs(each.confidence - each.accuracy) for each in bins)
    return differences / sum(each.images for each in bins)


def calibration_error(scores: Float32Array | Float64Array, labels: Labels, scale: float) -> float:
    """The expected calibration error of the bins of `reliability`."""
    return expected_calibration_error(reliability(scores, labels, scale))


def area_under_roc(higher: Float64Array, lower: Float64Array) -> float:
    """How often one of `higher` (n,) is above one of `lower` (m,), which may be infinite."""
    from scipy.stats import rankdata  # noqa: PLC0415
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415

    ranks = rankdata(np.concatenate([higher, lower]))
    return float(roc_auc_score(np.repeat([1, 0], [len(higher), len(lower)]), ranks))
