"""Linear scores that skip the zeros of the pooled vector.

Weights are stored feature-major: the rows of features that are zero, often more
than half of them, are never read.
"""

from service.engine.arrays import Float32Array
from service.engine.compiling import kernel

__all__ = ["add_scores"]


@kernel
def add_scores(pooled: Float32Array, weights: Float32Array, scores: Float32Array) -> None:
    """Add pooled·weights to `scores`. pooled (f,); weights (f, labels); scores (labels,)."""
    for feature in range(pooled.shape[0]):
        value = pooled[feature]
        if value != 0:
            for label in range(scores.shape[0]):
                scores[label] += value * weights[feature, label]
