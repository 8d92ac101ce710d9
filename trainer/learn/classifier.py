"""The linear classifier, solved in the span of the training images.

There are far fewer images than features. A Cholesky factor of the images' Gram matrix
holds the same inner products in as many columns as there are images; the solver works
there, and its weights are mapped back. Regularisation and the probability scale are
chosen on folds of the training images.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from service.engine.arrays import Float32Array, Float64Array
from service.engine.classifier import LinearClassifier, probabilities
from service.engine.config import ClassifierKind
from trainer.parallel import map_ordered

__all__ = [
    "ClassifierSettings",
    "FittedClassifier",
    "class_accuracies",
    "fit_classifier",
    "mean_class_accuracy",
]

logger = logging.getLogger(__name__)

Labels = npt.NDArray[np.int64]

# C of the solver. Pooled vectors have unit norm, so one range suits all data sets.
_CANDIDATES: dict[ClassifierKind, tuple[float, ...]] = {
    "svm": (1.0, 3.0, 10.0),
    "logistic": (100.0, 300.0, 1000.0),
}
_DEFAULTS: dict[ClassifierKind, float] = {"svm": 3.0, "logistic": 300.0}

# Relative to the diagonal; identical images would make the Gram matrix singular.
_RIDGE = 1e-5


@dataclass(frozen=True)
class ClassifierSettings:
    """Kind of the classifier, its regularisation (None: chosen on folds), folds, seed."""

    kind: ClassifierKind
    regularisation: float | None
    folds: int
    seed: int


@dataclass(frozen=True)
class FittedClassifier:
    """A classifier and its figures on the folds, None if no class has two images."""

    classifier: LinearClassifier
    probability_scale: float
    regularisation: float
    fold_accuracy: float | None
    fold_log_loss: float | None


@dataclass(frozen=True)
class _Span:
    """Training images as rows of a matrix with the same inner products, and their labels."""

    rows: Float64Array
    labels: Labels
    n_labels: int


@dataclass(frozen=True)
class _HeldOut:
    """Scores of images by classifiers that did not see them."""

    scores: Float64Array
    labels: Labels

    @property
    def accuracy(self) -> float:
        return mean_class_accuracy(self.scores.argmax(axis=1), self.labels)

    def log_loss(self, scale: float) -> float:
        chances = probabilities(self.scores, scale)
        chosen = chances[np.arange(len(self.labels)), self.labels]
        return float(-np.log(np.maximum(chosen, 1e-300)).mean())


def fit_classifier(
    pooled: Float32Array, labels: Labels, n_labels: int, settings: ClassifierSettings
) -> FittedClassifier:
    """A classifier for pooled vectors (n, n_features) with labels (n,) below `n_labels`."""
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
    )


def mean_class_accuracy(predicted: Labels, labels: Labels) -> float:
    """The mean of the classes' accuracies, the metric of the paper's tables."""
    return float(class_accuracies(predicted, labels).mean())


def class_accuracies(predicted: Labels, labels: Labels) -> Float64Array:
    """The share of right predictions for each label that occurs in `labels`, in order.

    That is scikit-learn's recall. Its `balanced_accuracy_score` is the mean of these, but
    warns where an image is taken for a class that has no images here.
    """
    return np.asarray(recall_score(labels, predicted, labels=np.unique(labels), average=None))


def _choose_regularisation(
    span: _Span, settings: ClassifierSettings
) -> tuple[float, _HeldOut | None]:
    """The candidate that does best on the folds, and its held-out scores."""
    candidates = _CANDIDATES[settings.kind]
    if settings.regularisation is not None:
        candidates = (settings.regularisation,)
    folds = _stratified_folds(span.labels, settings)
    if not folds:
        return settings.regularisation or _DEFAULTS[settings.kind], None
    fits = [(candidate, fold) for candidate in candidates for fold in folds]

    def score(fit: tuple[float, npt.NDArray[np.bool_]]) -> Float64Array:
        candidate, held = fit
        part = _Span(span.rows[~held], span.labels[~held], span.n_labels)
        coefficients, bias = _solve(part, settings.kind, candidate, settings.seed)
        return span.rows[held] @ coefficients + bias

    with threadpool_limits(1, "blas"):  # fits run in parallel, one thread each
        scores = list(map_ordered(score, fits, "folds"))
    results = [
        _gather(span, folds, scores[i * len(folds) : (i + 1) * len(folds)])
        for i in range(len(candidates))
    ]
    for candidate, result in zip(candidates, results, strict=True):
        logger.info("regularisation %g: accuracy on folds %.4f", candidate, result.accuracy)
    best = max(range(len(candidates)), key=lambda i: results[i].accuracy)
    return candidates[best], results[best]


def _gather(
    span: _Span, folds: list[npt.NDArray[np.bool_]], scores: Sequence[Float64Array]
) -> _HeldOut:
    return _HeldOut(np.concatenate(scores), np.concatenate([span.labels[held] for held in folds]))


def _stratified_folds(labels: Labels, settings: ClassifierSettings) -> list[npt.NDArray[np.bool_]]:
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
    best = minimize_scalar(
        lambda exponent: held_out.log_loss(float(np.exp(exponent))), bounds=(-3.0, 6.0)
    )
    return float(np.exp(best.x))
