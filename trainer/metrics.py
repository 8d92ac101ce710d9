"""Figures of classifiers: accuracy by class, log loss and calibration error.

`scores` are (n, n_labels), `labels` (n,); `scale` is the factor on the scores of which
probabilities are the softmax.
"""

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from service.engine.ranking import probabilities

__all__ = [
    "Interval",
    "Labels",
    "calibration_error",
    "class_accuracies",
    "log_loss",
    "mean_class_accuracy",
    "mean_class_accuracy_interval",
    "share_interval",
]

Labels = npt.NDArray[np.int64]
Interval = tuple[float, float]

_BINS = 15
# Of the normal distribution, between which 95 % lie.
_DEVIATIONS = 1.96


def mean_class_accuracy(predicted: Labels, labels: Labels) -> float:
    """The mean of the classes' accuracies, the metric of the paper's tables."""
    return float(class_accuracies(predicted, labels).mean())


def class_accuracies(predicted: Labels, labels: Labels) -> Float64Array:
    """The share of right predictions for each label that occurs in `labels`, in order.

    That is scikit-learn's recall. Its `balanced_accuracy_score` is the mean of these, but
    warns where an image is taken for a class that has no images here.
    """
    from sklearn.metrics import recall_score  # noqa: PLC0415

    return np.asarray(recall_score(labels, predicted, labels=np.unique(labels), average=None))


def share_interval(right: int, count: int) -> Interval:
    """Where the true share lies with 95 % confidence, if `right` of `count` were (Wilson 1927)."""
    from scipy.stats import binomtest  # noqa: PLC0415

    found = binomtest(right, count).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


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


def calibration_error(scores: Float32Array | Float64Array, labels: Labels, scale: float) -> float:
    """The expected calibration error over 15 bins of equal width (Guo and others 2017).

    Images are sorted into bins by the probability of their best label. For each bin the mean of
    these probabilities and the share of right labels should agree; the error is the mean of
    their differences, a bin counted as often as it has images.
    """
    chances = probabilities(scores, scale)
    top = chances.max(axis=1)
    right = chances.argmax(axis=1) == labels
    bins = np.minimum((top * _BINS).astype(np.int64), _BINS - 1)
    differences = np.bincount(bins, weights=top - right, minlength=_BINS)
    return float(np.abs(differences).sum() / len(labels))
