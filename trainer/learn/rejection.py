"""Images of the classes told from others: the threshold of confidences, by held-out scores.

Confidences are those of `service.engine.ranking`.
"""

from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float64Array
from trainer.metrics import area_under_roc

__all__ = ["Rejection", "fit_rejection", "kept_share", "rejected_share", "threshold_keeping"]

_KEPT_PERCENT = 95
# With examples of other images, for the sake of which more may be rejected.
_LEAST_KEPT_PERCENT = 90


@dataclass(frozen=True)
class Rejection:
    """A threshold, and which share of held-out images of the classes it keeps.

    With examples of other images, also which share of those it rejects, and the area under the
    ROC curve, which is how often an image of the classes is above another one.
    """

    threshold: float
    kept: float
    rejected: float | None = None
    auroc: float | None = None


def fit_rejection(known: Float64Array, unknown: Float64Array) -> Rejection:
    """The threshold for held-out confidences (n,) of the classes and (m,) of other images.

    It keeps 95 % of the former. With other images it is where the mean of the share that is kept
    of the ones and rejected of the others is largest, and keeps at least 90 %.
    """
    if not len(unknown):
        threshold = threshold_keeping(known, _KEPT_PERCENT)
        return Rejection(threshold, kept_share(known, threshold))
    threshold = _separating(np.sort(known), np.sort(unknown))
    return Rejection(
        threshold,
        kept_share(known, threshold),
        rejected_share(unknown, threshold),
        area_under_roc(known, unknown),
    )


def threshold_keeping(confidences: Float64Array, percent: int) -> float:
    """The highest threshold that keeps at least so many per cent of images."""
    return float(np.sort(confidences)[len(confidences) * (100 - percent) // 100])


def kept_share(confidences: Float64Array, threshold: float) -> float:
    """The share of images that a threshold takes for known."""
    return float((confidences >= threshold).mean())


def rejected_share(confidences: Float64Array, threshold: float) -> float:
    """The share of images that it does not."""
    return float((confidences < threshold).mean())


def _separating(known: Float64Array, unknown: Float64Array) -> float:
    """The best threshold, in the middle between the confidences around it; ties to the lowest."""
    most = threshold_keeping(known, _LEAST_KEPT_PERCENT)
    candidates = known[known <= most]
    lost = np.searchsorted(known, candidates) / len(known)
    rejected = np.searchsorted(unknown, candidates) / len(unknown)
    best = float(candidates[(rejected - lost).argmax()])
    both = np.concatenate([known, unknown])
    below = both[both < best]
    return (best + float(below.max())) / 2 if len(below) else best
