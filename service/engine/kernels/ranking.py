"""The best of some scores, and how probable they are."""

import numpy as np

from service.engine.arrays import Float32Array, Float64Array, Int64Array
from service.engine.compiling import kernel, part

__all__ = ["find_best"]


@part
def _list_best(scores: Float32Array, best: Int64Array) -> None:
    """Places of the largest scores, the largest first; the first of equals comes first."""
    for place in range(scores.shape[0]):
        # It is to stand behind all that are as large.
        rank = min(place, best.shape[0])
        while rank > 0 and scores[best[rank - 1]] < scores[place]:
            if rank < best.shape[0]:
                best[rank] = best[rank - 1]
            rank -= 1
        if rank < best.shape[0]:
            best[rank] = place


@kernel
def find_best(scores: Float32Array, scale: float, best: Int64Array, chances: Float64Array) -> None:
    """The k best of scores (n,): their places (k,), and probabilities (k,) by a softmax.

    That is of the scores times a scale. k is n at the most.
    """
    if best.shape[0] == 0:
        return
    _list_best(scores, best)
    # Differences first: of a large score, a product that is not rounded leaves a rest.
    largest, whole = np.float64(scores[best[0]]), 0.0
    for place in range(scores.shape[0]):
        whole += np.exp(scale * (np.float64(scores[place]) - largest))
    for rank in range(best.shape[0]):
        chances[rank] = np.exp(scale * (np.float64(scores[best[rank]]) - largest)) / whole
