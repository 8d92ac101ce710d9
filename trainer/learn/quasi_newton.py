"""L-BFGS (Liu and Nocedal 1989) for many labels at once, each with a curvature of its own.

SciPy's takes one vector: with all labels in it, they would share a curvature and a step length,
and each of its steps may look at the objective, which is a pass over a file, several times.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float32Array, Float64Array

__all__ = ["CurvatureMemory", "column_products"]

# Steps that are remembered; a pair of arrays as large as the weights for each.
_STEPS = 4
_ROWS = 4096


@dataclass(frozen=True)
class _Pair:
    """A step (n, n_labels), how the gradient changed, and their products (n_labels,)."""

    step: Float32Array
    change: Float32Array
    product: Float64Array


class CurvatureMemory:
    """The last steps and how the gradient changed with each of them."""

    def __init__(self) -> None:
        self._pairs: deque[_Pair] = deque(maxlen=_STEPS)

    def add(self, step: Float32Array, change: Float32Array) -> None:
        """Remember a step (n, n_labels) and the change (n, n_labels) of the gradient."""
        self._pairs.append(_Pair(step, change, column_products(step, change)))

    def direction(self, gradient: Float32Array) -> Float32Array:
        """Where to go (n, n_labels) from a point with this gradient: a descent for every label."""
        way = -gradient
        shares = []
        for pair in reversed(self._pairs):
            shares.append(_quotient(column_products(pair.step, way), pair.product))
            way -= shares[-1].astype(np.float32) * pair.change
        if self._pairs:
            last = self._pairs[-1]
            scale = _quotient(last.product, column_products(last.change, last.change))
            # A label that has not moved knows no curvature.
            way *= np.where(scale > 0, scale, 1).astype(np.float32)
        for pair, share in zip(self._pairs, reversed(shares), strict=True):
            share = share - _quotient(column_products(pair.change, way), pair.product)  # noqa: PLW2901
            way += share.astype(np.float32) * pair.step
        return way


def _quotient(part: Float64Array, whole: Float64Array) -> Float64Array:
    """The quotient, zero for labels that were solved before: they do not move any more."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def column_products(one: Float32Array, other: Float32Array) -> Float64Array:
    """The inner product (n_labels,) of each column of two arrays (n, n_labels)."""
    total = np.zeros(one.shape[1])
    for start in range(0, len(one), _ROWS):
        rows = slice(start, start + _ROWS)
        total += np.einsum("ij,ij->j", one[rows], other[rows])
    return total
