"""Linear classifier: a pooled vector to scores.

Weights are 16-bit integers with one scale a label, because reading them is bound by
memory. Rounding moved scores of the embedded model by at most 2·10⁻⁵ (40 images).
"""

from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float32Array, Int16Array, Tensors, frozen
from service.engine.kernels.classifier import add_scores

__all__ = ["LinearClassifier"]

# What the largest weight of a label is in fixed point.
_LARGEST = 2**15 - 1


@dataclass(frozen=True)
class LinearClassifier:
    """Weights (n_features, n_labels) in fixed point, scales and bias (n_labels,), read-only.

    A weight is its integer times the scale of its label.
    """

    weights: Int16Array
    scales: Float32Array
    bias: Float32Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", frozen(self.weights))
        object.__setattr__(self, "scales", frozen(self.scales))
        object.__setattr__(self, "bias", frozen(self.bias))

    @classmethod
    def from_floats(cls, weights: Float32Array, bias: Float32Array) -> "LinearClassifier":
        """The classifier with these weights, each rounded by at most half a scale."""
        largest = np.maximum(weights.max(axis=0, initial=0), -weights.min(axis=0, initial=0))
        scales = (largest / _LARGEST).astype(np.float32)
        # In float64: a quotient in float32 is off by up to 2·10⁻³ before it is rounded.
        integers = weights / np.where(scales == 0, 1, scales).astype(np.float64)
        np.rint(integers, out=integers)
        # A scale of few bits, below 10⁻³⁸, may be too small for its largest weight.
        np.clip(integers, -_LARGEST, _LARGEST, out=integers)
        return cls(integers.astype(np.int16), scales, bias)

    @classmethod
    def from_tensors(cls, tensors: Tensors) -> "LinearClassifier":
        """The classifier that a bundle's tensors hold; nothing is copied."""
        return cls(
            tensors["classifier_weights"], tensors["classifier_scales"], tensors["classifier_bias"]
        )

    def tensors(self) -> Tensors:
        """The tensors that a bundle stores of the classifier, by name."""
        return {
            "classifier_weights": self.weights,
            "classifier_scales": self.scales,
            "classifier_bias": self.bias,
        }

    def scores(self, pooled: Float32Array) -> Float32Array:
        """Scores (n_labels,) of a pooled vector (n_features,)."""
        sums = np.zeros(self.bias.shape, np.float32)
        add_scores(frozen(pooled), self.weights, sums)
        scores: Float32Array = self.scales * sums + self.bias
        return scores
