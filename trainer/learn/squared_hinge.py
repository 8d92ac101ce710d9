"""The linear SVM with squared hinge loss, one label against the rest, on a Gram matrix.

The objective is that of scikit-learn's `LinearSVC`: ½|w|² + ½b² + C Σ max(0, 1 − y f)², with
the bias b as the weight of a constant feature. liblinear takes one label after the other and one
image after the other; here all labels descend together, and a step is one product of matrices.
For 3030 images and 101 labels of Caltech 101, C = 3, that took 3.3 s of one core beside 15.4 s of
`LinearSVC` (tolerance 10⁻²) in the span of the images, 4.7 times as long.

Let H be the Gram matrix plus one (the constant feature), λ = 1 / 2C, which may differ between
images, and f = Hβ the scores of one label. Scores on the right side of the margin are their own
targets, t = y max(1, y f). The squared distance from fixed targets touches the loss from above,
and this bound is least at β' = (H + λI)⁻¹ t, where f' = t − λβ'. So the way there leads down: it
is the gradient in the metric of the bound. Conjugate directions of these gradients (Polak and
Ribière), each with a search along its line, need a tenth of the steps.

Coefficients that H maps to zero would grow unseen. A small part κ of λ therefore stands on the
diagonal of H and is taken off λ. The optimum stays the same: outside its margin an image has
f + λβ = y however λ is parted, inside β = 0.

The larger C is, the more steps this takes, 80 for C = 30 and 170 for C = 100 in Caltech 101; but
then few images, 400 of 2424, are left outside their margins. So such steps are taken for C up to
3. For a larger one, and for labels that are not solved after some steps, Newton's method goes on:
least squares of the images outside alone, β_S = (H_SS + λI)⁻¹ y_S, with an exact search along the
way there. When the same images stay outside, that is the optimum. Four or five such steps are
enough: 1.8 s of one core for C = 30 where 78 of the others took 4.8 s, 2.1 s for C = 100 in
place of 10.6 s. The steps before Newton's are the same for all such C, so that a search for C takes
them once.
"""

import logging
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from trainer.learn.grams import DualClassifier
from trainer.learn.lapack import positive_solve
from trainer.learn.least_squares import ridge_inverse, ridges, targets
from trainer.learn.line_search import Line, exact_line_minimum, line_minimum, row_sums
from trainer.metrics import Labels

__all__ = ["FirstSteps", "solve_squared_hinge"]

logger = logging.getLogger(__name__)

Mask = npt.NDArray[np.bool_]

# Conjugate steps, and Newton steps after them.
_MOST_STEPS = 12
_MOST_NEWTON_STEPS = 100
# The least λ of conjugate steps, that of C = 3: a larger C begins with Newton's steps from there.
_FIRST_RIDGE = 1 / 6
_TOLERANCE = 1e-2
# κ of the module's docstring: with .01 to .1 the steps are as few as without.
_ON_DIAGONAL = 0.05
# Of Newton's steps: the part of the tolerance by which an image may be on the wrong side of its
# margin.
_SMALL_PART = 0.1


@dataclass
class _Descent:
    """The labels still to be solved, one a row; arrays are (labels, n) or (labels, 1)."""

    ids: Labels
    signs: Float64Array
    coefficients: Float64Array
    scores: Float64Array
    way: Float64Array  # of the coefficients
    scores_way: Float64Array  # the same, of the scores
    last_step: Float64Array  # of the scores
    last_gain: Float64Array

    def only(self, kept: Mask) -> "_Descent":
        return _Descent(*(getattr(self, field.name)[kept] for field in fields(self)))


@dataclass(frozen=True)
class _Step:
    """A step of all labels, the gradient where it starts, and its product with the gradient."""

    coefficients: Float64Array
    scores: Float64Array
    gradient: Float64Array
    gain: Float64Array

    def only(self, kept: Mask) -> "_Step":
        return _Step(*(getattr(self, field.name)[kept] for field in fields(self)))


class FirstSteps:
    """The steps before Newton's with one Gram matrix and its labels, where they are used again.

    They are the same for all C of which every λ is below the least. Those of a smaller C are its
    own, and are not kept.
    """

    def __init__(self) -> None:
        self._ends: dict[float, tuple[Float64Array, Labels]] = {}

    @staticmethod
    def are_shared(regularisation: Float64Array) -> bool:
        """Whether they are the same for this C (n,) as for all larger ones."""
        return bool((ridges(regularisation, len(regularisation)) <= _FIRST_RIDGE).all())

    @classmethod
    def taken(
        cls, kernel: Float32Array | Float64Array, labels: Labels, n_labels: int
    ) -> "FirstSteps":
        """The steps that are shared, taken already."""
        steps = cls()
        ridge = np.full(len(labels), _FIRST_RIDGE)
        steps.end(kernel, targets(labels, n_labels), ridge, _TOLERANCE)
        return steps

    def end(
        self,
        kernel: Float32Array | Float64Array,
        signs: Float64Array,
        ridge: Float64Array,
        tolerance: float,
    ) -> tuple[Float64Array, Labels]:
        """Coefficients (labels, n), and the labels that they do not solve yet."""
        if (ridge > _FIRST_RIDGE).any():
            return _descend(signs, ridge_inverse(kernel, ridge), ridge, tolerance)
        if tolerance not in self._ends:
            inverse = ridge_inverse(kernel, ridge)
            self._ends[tolerance] = _descend(signs, inverse, ridge, tolerance)
        coefficients, left = self._ends[tolerance]
        return coefficients.copy(), left


def solve_squared_hinge(  # noqa: PLR0913  # the last is for searches
    kernel: Float32Array | Float64Array,
    labels: Labels,
    n_labels: int,
    regularisation: float | Float64Array,
    tolerance: float = _TOLERANCE,
    *,
    first_steps: FirstSteps | None = None,
) -> DualClassifier:
    """The classifier of images with a Gram matrix (n, n) and labels (n,) below `n_labels`.

    `regularisation` is C, or (n,) a C of each image. Scores are off by about `tolerance`.
    `first_steps` are of the same images, perhaps with another C, and change no result.
    """
    signs, ridge = targets(labels, n_labels), ridges(regularisation, len(labels))
    first_ridge = np.maximum(ridge, _FIRST_RIDGE)
    steps = FirstSteps() if first_steps is None else first_steps
    coefficients, left = steps.end(kernel, signs, first_ridge, tolerance)
    if (first_ridge > ridge).any():
        left = np.arange(n_labels)
    if len(left):
        matrix = kernel.astype(np.float64) + 1
        coefficients[left] = _newton(signs[left], coefficients[left], matrix, ridge, tolerance)
    return DualClassifier(np.ascontiguousarray(coefficients.T), coefficients.sum(axis=1))


def _descend(
    signs: Float64Array, inverse: Float64Array, ridge: Float64Array, tolerance: float
) -> tuple[Float64Array, Labels]:
    """Coefficients (labels, n), and the labels that they do not solve yet.

    A label is taken out when its steps gain next to nothing.
    """
    loss_ridge, diagonal = (1 - _ON_DIAGONAL) * ridge, _ON_DIAGONAL * ridge
    descent = _start(signs, inverse, loss_ridge)
    found = np.empty_like(signs)
    for _ in range(_MOST_STEPS):
        step = _majorisation_step(descent, inverse, loss_ridge, diagonal)
        found[descent.ids] = descent.coefficients + step.coefficients
        norm = row_sums(descent.coefficients * descent.scores)  # |w|² + b²
        left = (step.gain > tolerance**2 * ridge.mean() * norm)[:, 0]
        descent, step = descent.only(left), step.only(left)
        if not left.any():
            break
        _turn(descent, step)
        _move(descent, loss_ridge, diagonal)
    return found, descent.ids


def _newton(
    signs: Float64Array,
    start: Float64Array,
    matrix: Float64Array,
    ridge: Float64Array,
    tolerance: float,
) -> Float64Array:
    """Coefficients (labels, n) of the optimum; matrix (n, n) is H."""
    found, ids = start.copy(), np.arange(len(start))
    coefficients, scores = start, start @ matrix
    for _ in range(_MOST_NEWTON_STEPS):
        outside = signs * scores < 1
        found[ids] = aim = _least_squares_outside(signs, outside, matrix, ridge)
        scores_there = aim @ matrix
        violations = 1 - signs * scores_there
        moved = (violations > 0) != outside
        left = (moved & (np.abs(violations) > _SMALL_PART * tolerance)).any(axis=1)
        if not left.any():
            return found
        ids, signs, coefficients, scores = ids[left], signs[left], coefficients[left], scores[left]
        way, scores_way = aim[left] - coefficients, scores_there[left] - scores
        slope, curvature = row_sums(coefficients * scores_way), row_sums(way * scores_way)
        weights = signs / np.sqrt(ridge)
        line = Line(slope, curvature, weights * (signs - scores), weights * scores_way)
        length = exact_line_minimum(line)
        coefficients, scores = coefficients + length * way, scores + length * scores_way
    found[ids] = coefficients
    logger.warning("%d labels are not solved after %d steps", len(ids), _MOST_NEWTON_STEPS)
    return found


def _least_squares_outside(
    signs: Float64Array, outside: Mask, matrix: Float64Array, ridge: Float64Array
) -> Float64Array:
    """Coefficients (labels, n): least squares of the images outside, nothing for the others."""
    coefficients = np.zeros_like(signs)
    for row, mask in enumerate(outside):
        places = np.flatnonzero(mask)
        part = matrix[np.ix_(places, places)]
        part[np.diag_indices_from(part)] += ridge[places]
        coefficients[row, places] = positive_solve(part.T, signs[row, places])
    return coefficients


def _start(signs: Float64Array, inverse: Float64Array, ridge: Float64Array) -> _Descent:
    """Least squares, which are the answer where no score is beyond its margin."""
    coefficients = signs @ inverse
    nothing = np.zeros_like(signs)
    return _Descent(
        ids=np.arange(len(signs)),
        signs=signs,
        coefficients=coefficients,
        scores=signs - ridge * coefficients,
        way=nothing,
        scores_way=nothing,
        last_step=nothing,
        last_gain=np.full((len(signs), 1), np.inf),
    )


def _majorisation_step(
    descent: _Descent, inverse: Float64Array, ridge: Float64Array, diagonal: Float64Array
) -> _Step:
    """The way to the least squares of the targets, and what a short step on it gains."""
    outside = descent.signs * descent.scores < 1
    aims = np.where(outside, descent.signs, descent.scores)
    there = aims @ inverse
    scores = aims - ridge * there - descent.scores
    gradient = descent.coefficients - (aims - descent.scores) / ridge
    coefficients = there - descent.coefficients
    # That is −gradient · scores. There terms cancel out, and a label that is far from its optimum
    # was taken for solved.
    gain = row_sums(scores**2 / ridge) + _curvature(coefficients, scores, diagonal)
    return _Step(coefficients, scores, gradient, gain)


def _turn(descent: _Descent, step: _Step) -> None:
    """Make the way conjugate to the last one, or the step itself where that leads up."""
    turned = step.gain + row_sums(step.gradient * descent.last_step)
    share = np.maximum(0, turned / descent.last_gain)
    share[row_sums(step.gradient * (step.scores + share * descent.scores_way)) >= 0] = 0
    descent.way = step.coefficients + share * descent.way
    descent.scores_way = step.scores + share * descent.scores_way
    descent.last_step, descent.last_gain = step.scores, step.gain


def _move(descent: _Descent, ridge: Float64Array, diagonal: Float64Array) -> None:
    """Go to where the objective is least along the way; it never rises."""
    slope = row_sums(descent.coefficients * descent.scores_way)
    curvature = _curvature(descent.way, descent.scores_way, diagonal)
    weights = descent.signs / np.sqrt(ridge)
    violations = weights * (descent.signs - descent.scores)
    length = line_minimum(Line(slope, curvature, violations, weights * descent.scores_way))
    descent.coefficients = descent.coefficients + length * descent.way
    descent.scores = descent.scores + length * descent.scores_way


def _curvature(
    coefficients: Float64Array, scores: Float64Array, diagonal: Float64Array
) -> Float64Array:
    """βᵀHβ of a way; the diagonal alone makes a part of it that rounding may hide."""
    least = row_sums(diagonal * coefficients**2)
    return np.maximum(row_sums(coefficients * scores), least)
