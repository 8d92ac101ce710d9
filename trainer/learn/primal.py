"""The linear SVM of `squared_hinge` for more images than a Gram matrix can be kept of.

The weights themselves are looked for, by passes over a file of features. First a few passes of
coordinate descent on the coefficients of the images (the dual), a chunk at a time: they come near
the optimum soon, but each chunk knows the others by the weights only, and they pull the mean of
the images to and fro. Then L-BFGS on the weights of all images (the primal), whose first steps
mend just that.

Of 6000 images of Caltech 101 and 15 scenes with 116 labels, C = 3, three passes and eight steps,
each of which is a pass, are 1 % above the optimum; 20 passes of coordinate descent alone are 4 %,
25 steps of conjugate gradients alone 24 % above it. Starting from the solution on a part of the
images saves no pass.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array, frozen
from trainer.learn.feature_matrix import FeatureMatrix
from trainer.learn.kernels.coordinates import sweep_coordinates
from trainer.learn.line_search import Line, line_minimum
from trainer.learn.quasi_newton import CurvatureMemory, column_products
from trainer.metrics import Labels

__all__ = ["PrimalClassifier", "PrimalProblem", "solve_primal"]

logger = logging.getLogger(__name__)

Mask = npt.NDArray[np.bool_]

# Labels that are solved together: L-BFGS keeps a dozen arrays as large as their weights.
_MOST_LABELS = 128
# Labels whose steps are looked for together, in double precision.
_LINE_LABELS = 16

_PASSES = 3
_PASSES_AGAIN = 2  # from coefficients that were found for almost the same images
_SWEEPS = 4
_MOST_STEPS = 30
# L-BFGS ends when a step lowers the objective by less than this share.
_TOLERANCE = 3e-3


@dataclass(frozen=True)
class PrimalProblem:
    """Images of these labels (n,), below `n_labels`, in the order of the matrix.

    An image of another label, such as −1, is none of them all. regularisation (n,) is C of each
    image. A classifier of all images but those that are `held_out` (n,) scores these.
    """

    labels: Labels
    n_labels: int
    regularisation: Float64Array
    held_out: Mask
    seed: int = 0


@dataclass(frozen=True)
class PrimalClassifier:
    """Weights (n_features, n_labels) and bias (n_labels,) of all images, for unit vectors.

    held_out_scores (held out, n_labels) are by a classifier that did not see those images.
    """

    weights: Float32Array
    bias: Float32Array
    held_out_scores: Float32Array


def solve_primal(matrix: FeatureMatrix, problem: PrimalProblem) -> PrimalClassifier:
    """The classifier of all images; the one without those held out is solved on the way."""
    n_held_out = int(problem.held_out.sum())
    weights = np.empty((matrix.shape[1], problem.n_labels), np.float32)
    scores = np.empty((n_held_out, problem.n_labels), np.float32)
    grams: dict[int, Float32Array] = {}
    for first in range(0, problem.n_labels, _MOST_LABELS):
        part = slice(first, min(first + _MOST_LABELS, problem.n_labels))
        solver = _Solver(matrix, problem.labels - first, part.stop - first, grams, problem.seed)
        if n_held_out:
            seen = np.where(problem.held_out, 0.0, problem.regularisation)
            scores[:, part] = solver.solve(seen).scores[problem.held_out]
        weights[:, part] = solver.solve(problem.regularisation).weights
    return PrimalClassifier(weights[:-1], weights[-1], scores)


@dataclass(frozen=True)
class _Point:
    """Weights (n_features + 1, labels) and the scores (n, labels) that they give."""

    weights: Float32Array
    scores: Float32Array


class _Solver:
    """Some labels of a matrix, and coefficients of the images that further solutions start from.

    `grams` are inner products of the images of each chunk, filled when they are needed first.
    """

    def __init__(
        self,
        matrix: FeatureMatrix,
        labels: Labels,
        n_labels: int,
        grams: dict[int, Float32Array],
        seed: int,
    ) -> None:
        self._matrix = matrix
        self._labels = labels
        self._rng = np.random.default_rng([seed, 4])
        self._grams = grams
        self._coefficients = np.zeros((n_labels, len(labels)), np.float32)
        self._weights = np.zeros((matrix.shape[1], n_labels), np.float32)

    def solve(self, regularisation: Float64Array) -> _Point:
        """The optimum for images with these C (n,); those of C 0 do not count."""
        costs = (2 * regularisation).astype(np.float32)
        for number in range(_PASSES_AGAIN if self._coefficients.any() else _PASSES):
            self._descend(costs)
            logger.info("pass %d over the pooled vectors", number + 1)
        return self._polish(costs)

    def _descend(self, costs: Float32Array) -> None:
        """One pass of coordinate descent; the weights are always those of the coefficients."""
        for chunk in self._matrix.chunks(self._rng.permutation(self._matrix.n_chunks).tolist()):
            before = self._coefficients[:, chunk.rows]
            after, scores = before.copy(), chunk.scores(self._weights).T.copy()
            if chunk.rows.start not in self._grams:
                self._grams[chunk.rows.start] = chunk.gram()
            gram = frozen(self._grams[chunk.rows.start])
            labels, own_costs = self._labels[chunk.rows], frozen(costs[chunk.rows])

            def sweep(part: slice) -> None:
                own = frozen(labels - part.start)  # noqa: B023  # done before the next chunk
                arrays = after[part], scores[part]  # noqa: B023
                sweep_coordinates(gram, own, own_costs, _SWEEPS, *arrays)  # noqa: B023

            list(self._matrix.executor.map(sweep, self._label_parts))
            chunk.add_to(self._weights, (after - before).T)
            self._coefficients[:, chunk.rows] = after

    @cached_property
    def _label_parts(self) -> list[slice]:
        n_labels = len(self._coefficients)
        return [
            slice(start, min(start + _LINE_LABELS, n_labels))
            for start in range(0, n_labels, _LINE_LABELS)
        ]

    def _polish(self, costs: Float32Array) -> _Point:
        """L-BFGS from the weights of the coefficients, which stay as they are."""
        weights = self._weights.copy()
        scores = self._matrix.scores(weights)
        memory, last_gradient, step = CurvatureMemory(), None, weights
        value = self._objective(weights, scores, costs)
        for number in range(_MOST_STEPS):
            gradient = weights - self._matrix.transposed(self._pulls(scores, costs))
            if last_gradient is not None:
                memory.add(step, gradient - last_gradient)
            last_gradient, way = gradient, memory.direction(gradient)
            scores_way = self._matrix.scores(way)
            length = self._step_length(_Point(weights, scores), _Point(way, scores_way), costs)
            step = length * way
            weights += step
            scores += length * scores_way
            before, value = value, self._objective(weights, scores, costs)
            logger.info("step %d: objective %.5g", number + 1, value)
            if before - value < _TOLERANCE * value:
                break
        return _Point(weights, scores)

    def _pulls(self, scores: Float32Array, costs: Float32Array) -> Float32Array:
        """How the loss of each image pulls at the scores (n, labels)."""
        pulls = self._signs - scores
        pulls[self._signs * pulls <= 0] = 0
        pulls *= costs[:, np.newaxis]
        return pulls

    @cached_property
    def _signs(self) -> Float32Array:
        is_own = self._labels[:, np.newaxis] == np.arange(len(self._coefficients))
        return np.where(is_own, np.float32(1), np.float32(-1))

    def _objective(self, weights: Float32Array, scores: Float32Array, costs: Float32Array) -> float:
        """½|w|² + ½b² + C Σ max(0, 1 − y f)², of all labels together."""
        missing = np.maximum(1 - self._signs * scores, 0)
        loss = np.einsum("ij,ij,i->", missing, missing, costs, dtype=np.float64)
        return float(column_products(weights, weights).sum() + loss) / 2

    def _step_length(self, at: _Point, way: _Point, costs: Float32Array) -> Float32Array:
        """How far (labels,) each label goes along its way."""
        slope = column_products(at.weights, way.weights)
        curvature = column_products(way.weights, way.weights)
        lengths = np.zeros(len(slope), np.float32)
        for part in self._moving_parts(curvature):
            signs: Float64Array = self._signs[:, part].T.astype(np.float64)
            factors = np.sqrt(costs.astype(np.float64)) * signs
            line = Line(
                slope[part, np.newaxis],
                curvature[part, np.newaxis],
                factors * (signs - at.scores[:, part].T),
                np.asarray(factors * way.scores[:, part].T, np.float64),
            )
            lengths[part] = line_minimum(line)[:, 0]
        return lengths

    def _moving_parts(self, curvature: Float64Array) -> Iterator[Labels]:
        """Numbers of the labels whose way leads anywhere, a few at a time."""
        moving = np.flatnonzero(curvature)
        for start in range(0, len(moving), _LINE_LABELS):
            yield moving[start : start + _LINE_LABELS]
