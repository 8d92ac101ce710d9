"""Scores to labels: probabilities, and the best few labels."""

from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float32Array, Float64Array

__all__ = ["Prediction", "probabilities", "rank"]


@dataclass(frozen=True)
class Prediction:
    """One label and how probable it is."""

    label: str
    probability: float


def probabilities(scores: Float32Array | Float64Array, scale: float) -> Float64Array:
    """Softmax of the scaled scores along the last axis; sums to one."""
    scaled = scores.astype(np.float64) * scale
    exponentials = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    normalised: Float64Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return normalised


def rank(
    scores: Float32Array, labels: tuple[str, ...], scale: float, top_k: int
) -> tuple[Prediction, ...]:
    """The `top_k` best labels, best first; ties go to the lowest index."""
    best = np.argsort(-scores, kind="stable")[:top_k]
    chances = probabilities(scores, scale)
    return tuple(Prediction(labels[i], float(chances[i])) for i in best)
