"""Scores to probabilities, without a kernel: the front end of the service has none."""

import numpy as np

from service.engine.arrays import Float32Array, Float64Array

__all__ = ["probabilities"]


def probabilities(scores: Float32Array | Float64Array, scale: float) -> Float64Array:
    """Softmax of the scaled scores along the last axis; sums to one."""
    chances: Float64Array = np.multiply(scores, scale, dtype=np.float64)
    chances -= chances.max(axis=-1, keepdims=True)
    np.exp(chances, out=chances)
    chances /= chances.sum(axis=-1, keepdims=True)
    return chances
