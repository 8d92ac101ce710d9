"""The linear classifier, solved in the span of the training images.

There are far fewer images than features. A Cholesky factor of the images' Gram matrix
holds the same inner products in as many columns as there are images; the solver works
there, and its weights are mapped back. Regularisation and the probability scale are
chosen on folds of the training images.

scikit-learn and SciPy are imported where they are called: that takes more than a second, for
which no other command, and no `--help`, should wait.
"""

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from service.engine.classifier import LinearClassifier
from service.engine.config import ClassifierKind
from service.engine.ranking import probabilities
from trainer.parallel import map_in_processes, n_threads, one_blas_thread

__all__ = [
    "ClassifierSettings",
    "FittedClassifier",
    "class_accuracies",
    "fit_classifier",
    "mean_class_accuracy",
]

logger = logging.getLogger(__name__)

Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# C of the solver. Pooled vectors have unit norm, so one range suits most data sets; where
# the best of these is the first or the last, others follow.
_FIRST_CANDIDATES: dict[ClassifierKind, tuple[float, ...]] = {
    "svm": (1.0, 3.0, 10.0),
    "logistic": (100.0, 300.0, 1000.0),
}
_CANDIDATES = tuple(float(f"{digit}e{power}") for power in range(-3, 6) for digit in (1, 3))
_DEFAULTS: dict[ClassifierKind, float] = {"svm": 3.0, "logistic": 300.0}

# Relative to the diagonal; identical images would make the Gram matrix singular.
_RIDGE = 1e-5

# Values of the images' matrix times labels: the solver takes a second for 6·10⁷ of them, and a
# process two to start.
_WORTH_PROCESSES = 5 * 10**7


@dataclass(frozen=True)
class ClassifierSettings:
    """Kind of the classifier, its regularisation (None: chosen on folds), folds, seed."""

    kind: ClassifierKind
    regularisation: float | None
    folds: int
    seed: int


@dataclass(frozen=True)
class FittedClassifier:
    """A classifier and its figures on the folds, None if no class has two images.

    `untested` are the labels with one image, which no fold can test. They count as missed in
    the accuracy, because a classifier that has not seen that image does not know them.
    """

    classifier: LinearClassifier
    probability_scale: float
    regularisation: float
    fold_accuracy: float | None
    fold_log_loss: float | None
    untested: tuple[int, ...]


@dataclass(frozen=True)
class _Span:
    """Training images as rows of a matrix with the same inner products, and their labels."""

    rows: Float64Array
    labels: Labels
    n_labels: int


@dataclass(frozen=True)
class _Fit:
    """One fold: which images are held out, and the classifier that is fitted to the others."""

    span: _Span
    held: Mask
    kind: ClassifierKind
    regularisation: float
    seed: int


@dataclass(frozen=True)
class _HeldOut:
    """Scores of images by classifiers that did not see them."""

    scores: Float64Array
    labels: Labels

    @property
    def accuracy(self) -> float:
        """The mean of all classes' accuracies, nothing for those without images here."""
        accuracies = class_accuracies(self.scores.argmax(axis=1), self.labels)
        return float(accuracies.sum() / self.scores.shape[1])

    def log_loss(self, scale: float) -> float:
        chances = probabilities(self.scores, scale)
        chosen = chances[np.arange(len(self.labels)), self.labels]
        return float(-np.log(np.maximum(chosen, 1e-300)).mean())


def fit_classifier(
    pooled: Float32Array, labels: Labels, n_labels: int, settings: ClassifierSettings
) -> FittedClassifier:
    """A classifier for pooled vectors (n, n_features) with labels (n,) below `n_labels`."""
    from scipy.linalg import solve_triangular  # noqa: PLC0415

    gram = (pooled @ pooled.T).astype(np.float64)
    gram[np.diag_indices_from(gram)] += _RIDGE * max(1.0, float(np.diag(gram).mean()))
    span = _Span(np.asarray(np.linalg.cholesky(gram), np.float64), labels, n_labels)
    regularisation, held_out = _choose_regularisation(span, settings)
    scale = _fit_scale(held_out) if held_out else 1.0
    coefficients, bias = _solve(span, settings.kind, regularisation, settings.seed)
    combination = solve_triangular(span.rows.T, coefficients, lower=False)
    weights = pooled.T @ combination.astype(np.float32)
    return FittedClassifier(
        LinearClassifier.from_floats(weights, bias.astype(np.float32)),
        scale,
        regularisation,
        held_out.accuracy if held_out else None,
        held_out.log_loss(scale) if held_out else None,
        tuple(np.flatnonzero(np.bincount(labels, minlength=n_labels) < 2).tolist()),
    )


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


def _choose_regularisation(
    span: _Span, settings: ClassifierSettings
) -> tuple[float, _HeldOut | None]:
    """The candidate that does best on the folds, and its held-out scores.

    Where that is the smallest or the largest that was tried, the next one beyond it is tried
    too. Ties go to the candidate nearest to the default.
    """
    default = _DEFAULTS[settings.kind]
    folds = _stratified_folds(span.labels, settings)
    if not folds:
        return settings.regularisation or default, None
    candidates = list(_FIRST_CANDIDATES[settings.kind])
    if settings.regularisation is not None:
        candidates = [settings.regularisation]
    tried: dict[float, _HeldOut] = {}
    while candidates:
        tried.update(_held_out(span, folds, candidates, settings))
        nearest_first = sorted(tried, key=lambda candidate: abs(math.log(candidate / default)))
        best = max(nearest_first, key=lambda candidate: tried[candidate].accuracy)
        candidates = [] if settings.regularisation is not None else _neighbours(best, tried)
    return best, tried[best]


def _neighbours(best: float, tried: Collection[float]) -> list[float]:
    """The next candidate beyond the best one, if that is at an edge of those tried."""
    place = _CANDIDATES.index(best)
    around = _CANDIDATES[max(place - 1, 0) : place + 2]
    if place in {0, len(_CANDIDATES) - 1}:
        logger.warning("regularisation %g is the last candidate, a better one may lie beyond", best)
    return [candidate for candidate in around if candidate not in tried]


def _held_out(
    span: _Span,
    folds: Sequence[Mask],
    candidates: Sequence[float],
    settings: ClassifierSettings,
) -> dict[float, _HeldOut]:
    """For each candidate the scores of all folds, each by a classifier of the others."""
    fits = [
        _Fit(span, held, settings.kind, candidate, settings.seed)
        for candidate in candidates
        for held in folds
    ]
    # The solver's random numbers are one generator for all threads of a process.
    count = n_threads() if span.rows.size * span.n_labels >= _WORTH_PROCESSES else 1
    scores = map_in_processes(_score_held_out, fits, "folds", count)
    labels = np.concatenate([span.labels[held] for held in folds])
    found: dict[float, _HeldOut] = {}
    for candidate in candidates:
        found[candidate] = _HeldOut(np.concatenate(list(islice(scores, len(folds)))), labels)
        accuracy = found[candidate].accuracy
        logger.info("regularisation %g: accuracy on folds %.4f", candidate, accuracy)
    return found


def _score_held_out(fit: _Fit) -> Float64Array:
    """Scores (n, n_labels) of the images held out by a classifier of the others."""
    span, held = fit.span, fit.held
    part = _Span(np.asarray(span.rows[~held]), span.labels[~held], span.n_labels)
    with one_blas_thread():  # of this process: fits run side by side
        coefficients, bias = _solve(part, fit.kind, fit.regularisation, fit.seed)
        scores: Float64Array = np.asarray(span.rows[held]) @ coefficients + bias
    return scores


def _stratified_folds(labels: Labels, settings: ClassifierSettings) -> list[Mask]:
    """Held-out masks, each class spread evenly; the only image of a class is never held out."""
    rng = np.random.default_rng([settings.seed, 1])
    fold_of = np.full(len(labels), -1)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        if len(members) > 1:
            fold_of[members] = np.arange(len(members)) % settings.folds
    return [fold_of == fold for fold in range(settings.folds) if (fold_of == fold).any()]


def _solve(
    span: _Span, kind: ClassifierKind, regularisation: float, seed: int
) -> tuple[Float64Array, Float64Array]:
    """Coefficients (n, n_labels) and bias (n_labels,) in the span."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.svm import LinearSVC  # noqa: PLC0415

    if kind == "svm":
        model = LinearSVC(C=regularisation, dual=True, tol=1e-2, max_iter=10_000, random_state=seed)
    else:
        model = LogisticRegression(C=regularisation, max_iter=1000, tol=1e-3)
    model.fit(span.rows, span.labels)
    coefficients, bias = model.coef_.T, model.intercept_
    if span.n_labels == 2:  # one vector tells two labels apart
        return np.hstack([-coefficients, coefficients]), np.concatenate([-bias, bias])
    return coefficients, bias


def _fit_scale(held_out: _HeldOut) -> float:
    """The factor on the scores that makes held-out probabilities most likely (calibration)."""
    from scipy.optimize import minimize_scalar  # noqa: PLC0415

    best = minimize_scalar(
        lambda exponent: held_out.log_loss(float(np.exp(exponent))), bounds=(-3.0, 6.0)
    )
    return float(np.exp(best.x))
