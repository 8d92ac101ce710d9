"""The linear classifier, fitted to Gram matrices of the pooled vector's blocks.

Weights between blocks, regularisation and the probability scale are chosen on folds of the
training images. The result are coefficients of the training images, from which the weights of a
block are made when its features come by once more.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float32Array
from service.engine.config import ClassifierKind
from trainer.learn.block_search import DEFAULT_REGULARISATION, Search
from trainer.learn.held_out import Choice, Folds, HeldOut, TrainingImages, stratified_folds
from trainer.metrics import Labels
from trainer.parallel import one_blas_thread

__all__ = ["ClassifierSettings", "FittedClassifier", "fit_classifier"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClassifierSettings:
    """Kind of the classifier, its regularisation (None: chosen on folds), folds, seed.

    `weights` has one number for each block, or none for ones. The search starts there and
    leaves the first as it is; a block of weight 0 is left out. With `fixed_weights` they stay.
    """

    kind: ClassifierKind
    regularisation: float | None
    folds: int
    seed: int
    weights: tuple[float, ...] = ()
    fixed_weights: bool = False


@dataclass(frozen=True)
class FittedClassifier:
    """A classifier and its figures on the folds, None if no class has two images.

    `coefficients` (n, n_labels) are of the training images: `grams.block_weights` makes a block's
    weights of them. `regularisation` is C for pooled vectors scaled to unit length. `untested`
    are the labels with one image, which no fold can test. They count as missed in the
    accuracy, because a classifier that has not seen that image does not know them.
    """

    block_weights: tuple[float, ...]
    coefficients: Float32Array
    bias: Float32Array
    probability_scale: float
    regularisation: float
    fold_accuracy: float | None
    fold_log_loss: float | None
    fold_calibration_error: float | None
    untested: tuple[int, ...]


def fit_classifier(
    grams: Sequence[Float32Array], labels: Labels, n_labels: int, settings: ClassifierSettings
) -> FittedClassifier:
    """A classifier of images with labels (n,) below `n_labels`.

    `grams` are the inner products (n, n) of each block, whose vectors have unit length.
    """
    images = TrainingImages(tuple(grams), labels, n_labels)
    masks = stratified_folds(labels, settings.folds, settings.seed)
    folds = Folds(images, masks, settings.kind)
    with one_blas_thread():  # solvers run side by side
        choice, held_out = _choose(folds, settings)
        solved = folds.solve(choice)
    scale = _fit_scale(held_out) if held_out else 1.0
    norm = sum(weight**2 for weight in choice.weights)
    return FittedClassifier(
        block_weights=choice.weights,
        coefficients=(solved.coefficients / norm).astype(np.float32),
        bias=solved.bias.astype(np.float32),
        probability_scale=scale,
        regularisation=choice.regularisation,
        fold_accuracy=held_out.accuracy if held_out else None,
        fold_log_loss=held_out.log_loss(scale) if held_out else None,
        fold_calibration_error=held_out.calibration_error(scale) if held_out else None,
        untested=tuple(np.flatnonzero(np.bincount(labels, minlength=n_labels) < 2).tolist()),
    )


def _choose(folds: Folds, settings: ClassifierSettings) -> tuple[Choice, HeldOut | None]:
    """The choice that does best on the folds, and its held-out scores."""
    n_blocks = len(folds.images.grams)
    weights = settings.weights or (1.0,) * n_blocks
    if len(weights) != n_blocks:
        raise ValueError(f"{len(weights)} weights for {n_blocks} blocks, expected one each")
    choice = Choice(weights, settings.regularisation or DEFAULT_REGULARISATION[settings.kind])
    if not folds.masks:
        return choice, None
    search = Search(folds)
    if settings.regularisation is None:
        choice = search.choose_regularisation(choice)
    if not settings.fixed_weights and n_blocks > 1:
        # With the regularisation of all blocks: at that of fewer, a good block may seem to lose.
        choice = search.choose_weights(choice)
        if settings.regularisation is None:
            choice = search.choose_regularisation(choice)
    search.try_all([choice])
    if len(weights) > 1:
        logger.info("weights of the blocks: %s", ", ".join(f"{w:.3g}" for w in choice.weights))
    return choice, search.tried[choice]


def _fit_scale(held_out: HeldOut) -> float:
    """The factor on the scores that makes held-out probabilities most likely (calibration)."""
    from scipy.optimize import minimize_scalar  # noqa: PLC0415

    best = minimize_scalar(
        lambda exponent: held_out.log_loss(float(np.exp(exponent))), bounds=(-3.0, 6.0)
    )
    return float(np.exp(best.x))
