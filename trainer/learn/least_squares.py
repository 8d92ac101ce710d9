"""Least squares on a Gram matrix: what every fold scores, from one inverse for all of them.

Let H be the Gram matrix plus one (the constant feature), Λ the diagonal of 1 / 2C, t the targets
±1 of one label, and G = (H + Λ)⁻¹. If the images S of a fold had not been there, the classifier
of the others would give them the scores t_S − G_SS⁻¹ (G t)_S: the squared error of S is nothing
at its own scores, so that with these as targets S might as well be there (the predicted
residuals of statistics). A choice takes one inverse, where the SVM takes a descent a fold.

Least squares choose between weights of blocks as the SVM does: of Caltech 101, split 0, folds
have .7716, .7759, .7805 and .7815 for C = 1, 3, 10 and 30, those of the SVM .7620, .7729, .7799
and .7805, and both take the same weights.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from trainer.metrics import Labels

__all__ = ["held_out_least_squares", "ridge_inverse", "ridges", "targets"]

Mask = npt.NDArray[np.bool_]


def targets(labels: Labels, n_labels: int) -> Float64Array:
    """One row (n,) for each label: 1 for its images, −1 for all others."""
    return np.where(labels == np.arange(n_labels)[:, np.newaxis], 1.0, -1.0)


def ridges(regularisation: float | Float64Array, n_images: int) -> Float64Array:
    """λ (n,) of every image, from C or from a C of each image."""
    return np.broadcast_to(1 / (2 * np.asarray(regularisation, np.float64)), (n_images,))


def ridge_inverse(kernel: Float32Array | Float64Array, ridge: Float64Array) -> Float64Array:
    """The inverse (n, n) of the Gram matrix with the constant feature and ridges (n,)."""
    from scipy.linalg.lapack import dpotrf, dpotri  # noqa: PLC0415

    matrix = kernel.astype(np.float64, order="F") + 1
    matrix[np.diag_indices_from(matrix)] += ridge
    factor, failed = dpotrf(matrix, lower=1, overwrite_a=1)
    if failed:
        raise ValueError("the Gram matrix has negative eigenvalues, expected inner products")
    inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
    # The other triangle was not computed.
    return np.asarray(np.tril(inverse) + np.tril(inverse, -1).T, np.float64)


def held_out_least_squares(
    kernel: Float32Array | Float64Array,
    signs: Float64Array,
    ridge: Float64Array,
    masks: Sequence[Mask],
) -> Float64Array:
    """Scores (n, n_labels) of images by classifiers that did not see their fold.

    kernel (n, n) is a Gram matrix, signs (n_labels, n) are targets, ridge (n,) is λ of each
    image. Images in none of the folds, masks (n,), have the scores of the classifier of all.
    """
    inverse = ridge_inverse(kernel, ridge)
    coefficients = inverse @ signs.T
    scores = signs.T - ridge[:, np.newaxis] * coefficients
    for mask in masks:
        fold = np.flatnonzero(mask)
        missing = np.linalg.solve(inverse[np.ix_(fold, fold)], coefficients[fold])
        scores[fold] = signs.T[fold] - missing
    return scores
