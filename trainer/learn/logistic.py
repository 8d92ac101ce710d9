"""Multinomial logistic regression, solved in the span of the training images.

A Cholesky factor of the images' Gram matrix holds the same inner products in as many columns as
there are images; scikit-learn's solver works there, and its weights become coefficients of the
images.
"""

import numpy as np

from service.engine.arrays import Float32Array, Float64Array
from trainer.learn.grams import DualClassifier
from trainer.metrics import Labels

__all__ = ["solve_logistic"]

# Relative to the diagonal; identical images would make the Gram matrix singular.
_RIDGE = 1e-5


def solve_logistic(
    kernel: Float32Array | Float64Array,
    labels: Labels,
    n_labels: int,
    regularisation: Float64Array,
) -> DualClassifier:
    """The classifier of images with a Gram matrix (n, n) and labels (n,) below `n_labels`.

    `regularisation` (n,) is the C of each image.
    """
    # Here, because to import them takes more than a second, for which no --help should wait.
    from scipy.linalg import solve_triangular  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    gram = kernel.astype(np.float64)
    gram[np.diag_indices_from(gram)] += _RIDGE * max(1.0, float(np.diag(gram).mean()))
    rows = np.linalg.cholesky(gram)
    mean = float(regularisation.mean())
    model = LogisticRegression(C=mean, max_iter=1000, tol=1e-3)
    model.fit(rows, labels, sample_weight=regularisation / mean)
    weights, bias = model.coef_.T, model.intercept_
    if n_labels == 2:  # one vector tells two labels apart
        weights, bias = np.hstack([-weights, weights]), np.concatenate([-bias, bias])
    return DualClassifier(solve_triangular(rows.T, weights, lower=False), bias)
