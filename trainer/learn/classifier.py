"""The linear classifier, fitted to Gram matrices of the pooled vector's blocks.

Weights between blocks, regularisation and the probability scale are chosen on folds of the
training images. The result are coefficients of the training images, from which the weights of a
block are made when its features come by once more.
"""

import logging
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from service.engine.arrays import Float32Array, Float64Array
from service.engine.config import ClassifierKind
from service.engine.ranking import confidences
from trainer.learn.block_search import CANDIDATES, DEFAULT_REGULARISATION, Search
from trainer.learn.held_out import UNKNOWN, Choice, Folds, HeldOut, TrainingImages, stratified_folds
from trainer.learn.rejection import Rejection, fit_rejection
from trainer.metrics import Labels
from trainer.parallel import one_blas_thread
from trainer.stages import stage

__all__ = [
    "ClassWeight",
    "ClassifierSettings",
    "FittedClassifier",
    "fit_classifier",
    "folds_of",
    "image_weights",
]

logger = logging.getLogger(__name__)

ClassWeight = Literal["balanced", "none"]


@dataclass(frozen=True)
class ClassifierSettings:
    """Kind of the classifier, its regularisation (None: chosen on folds), folds, seed.

    `weights` has one number for each block, or none for ones. The search starts there and
    leaves the first as it is; a block of weight 0 is left out. With `fixed_weights` they stay.
    `class_weight` says how much the images of large and of small classes count.
    """

    kind: ClassifierKind
    regularisation: float | None
    folds: int
    seed: int
    weights: tuple[float, ...] = ()
    fixed_weights: bool = False
    class_weight: ClassWeight = "balanced"


@dataclass(frozen=True)
class FittedClassifier:
    """A classifier and what it scores on the folds, None if there are none.

    There are none if no class has two images, or two groups of them. `coefficients`
    (n, n_labels) are of the training images: `grams.block_weights` makes a block's weights of
    them. Images that are too many for Gram matrices have none (`trainer.many_images`).
    `regularisation` is C for pooled vectors scaled to unit length. `untested` are the labels
    that no fold can test, mostly those with one image. They count as missed in the accuracy,
    because a classifier that has not seen that image does not know them. `rejection` tells images
    of the classes from others, None if there are no folds.
    """

    block_weights: tuple[float, ...]
    coefficients: Float32Array
    bias: Float32Array
    probability_scale: float
    regularisation: float
    held_out: HeldOut | None
    untested: tuple[int, ...]
    rejection: Rejection | None = None

    @classmethod
    def of(
        cls,
        choice: Choice,
        coefficients: Float32Array,
        bias: Float32Array | Float64Array,
        held_out: HeldOut | None,
    ) -> "FittedClassifier":
        """The classifier with these coefficients and bias; its probabilities are calibrated."""
        return cls(
            block_weights=choice.weights,
            coefficients=coefficients,
            bias=bias.astype(np.float32),
            probability_scale=_fit_scale(held_out) if held_out else 1.0,
            regularisation=choice.regularisation,
            held_out=held_out,
            untested=_untested(held_out, len(bias)),
            rejection=_fit_rejection(held_out) if held_out else None,
        )

    @property
    def known_threshold(self) -> float | None:
        """The best score that images of the classes have at least."""
        return None if self.rejection is None else self.rejection.threshold

    @property
    def fold_accuracy(self) -> float | None:
        """The mean per-class accuracy on the folds."""
        return None if self.held_out is None else self.held_out.accuracy


def fit_classifier(images: TrainingImages, settings: ClassifierSettings) -> FittedClassifier:
    """A classifier of images whose vectors of each block have unit length."""
    folds = folds_of(images, settings)
    with one_blas_thread():  # solvers run side by side
        with stage("search"):
            choice, held_out = _choose(folds, settings)
        solved = folds.solve(choice)
    norm = sum(weight**2 for weight in choice.weights)
    return FittedClassifier.of(
        choice, (solved.coefficients / norm).astype(np.float32), solved.bias, held_out
    )


def image_weights(labels: Labels, class_weight: ClassWeight) -> Float64Array | None:
    """How much each image (n,) counts: classes as much as one another, or images.

    Images of unknown label are no class, and count as images do.
    """
    if class_weight == "none":
        return None
    weights, known = np.ones(len(labels)), labels != UNKNOWN
    _, places, counts = np.unique(labels[known], return_inverse=True, return_counts=True)
    weights[known] = (len(places) / (len(counts) * counts))[places]
    return weights


def folds_of(images: TrainingImages, settings: ClassifierSettings) -> Folds:
    """The folds on which a classifier of these images is chosen."""
    masks = stratified_folds(images.labels, settings.folds, settings.seed, images.groups)
    testing = tuple(mask for mask in masks if (images.labels[mask] != UNKNOWN).any())
    return Folds(images, testing, settings.kind)


def _choose(folds: Folds, settings: ClassifierSettings) -> tuple[Choice, HeldOut | None]:
    """The choice that does best on the folds, and its held-out scores."""
    n_blocks = len(folds.images.grams)
    weights = settings.weights or (1.0,) * n_blocks
    if len(weights) != n_blocks:
        raise ValueError(f"{len(weights)} weights for {n_blocks} blocks, expected one each")
    choice = Choice(weights, settings.regularisation or DEFAULT_REGULARISATION[settings.kind])
    if not folds.masks:
        return choice, None
    if not settings.fixed_weights and n_blocks > 1:
        choice = _choose_weights(folds, choice, settings)
    search = Search(folds.held_out, CANDIDATES[settings.kind])
    if settings.regularisation is None:
        choice = search.choose_regularisation(choice)
        _warn_of_last(choice.regularisation, search.candidates)
    search.try_all([choice])
    return choice, search.tried[choice]


def _choose_weights(folds: Folds, start: Choice, settings: ClassifierSettings) -> Choice:
    """The start with other weights, chosen by least squares, whatever kind the classifier is of.

    A regularisation that is given for an SVM is that of least squares too.
    """
    given = settings.regularisation if settings.kind == "svm" else None
    candidates = CANDIDATES["svm"] if given is None else (given,)
    search = Search(folds.least_squares, candidates, logging.DEBUG)
    first = replace(start, regularisation=given or DEFAULT_REGULARISATION["svm"])
    best = search.choose_weights(first)
    accuracy, text = search.tried[best].accuracy, ", ".join(f"{w:.3g}" for w in best.weights)
    logger.info(
        "weights of the blocks: %s; accuracy on folds by least squares %.4f, %d choices tried",
        text,
        accuracy,
        len(search.tried),
    )
    return replace(start, weights=best.weights)


def _warn_of_last(regularisation: float, candidates: tuple[float, ...]) -> None:
    if regularisation in {candidates[0], candidates[-1]}:
        logger.warning(
            "regularisation %g is the last candidate, a better one may lie beyond", regularisation
        )


def _untested(held_out: HeldOut | None, n_labels: int) -> tuple[int, ...]:
    """The labels that no held-out image has."""
    tested = () if held_out is None else held_out.labels
    return tuple(np.setdiff1d(np.arange(n_labels), tested).tolist())


def _fit_rejection(held_out: HeldOut) -> Rejection:
    """The threshold for the best scores; blank images among these count like all others."""
    return fit_rejection(
        confidences(held_out.scores, are_blank=False),
        confidences(held_out.unknown_scores, are_blank=False),
    )


def _fit_scale(held_out: HeldOut) -> float:
    """The factor on the scores that makes held-out probabilities most likely (calibration)."""
    from scipy.optimize import minimize_scalar  # noqa: PLC0415

    best = minimize_scalar(
        lambda exponent: held_out.log_loss(float(np.exp(exponent))), bounds=(-3.0, 6.0)
    )
    return float(np.exp(best.x))
