"""Dual coordinate descent for the squared hinge loss, on the inner products of a few images.

That is the method of liblinear (Hsieh et al. 2008), which a large file of images is given to in
blocks (Yu et al. 2010): one coefficient after the other goes to where the objective is least.
"""

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array
from service.engine.compiling import kernel

__all__ = ["sweep_coordinates"]


@kernel
def sweep_coordinates(
    gram: Float32Array,
    labels: npt.NDArray[np.int64],
    costs: Float32Array,
    sweeps: int,
    coefficients: Float32Array,
    scores: Float32Array,
) -> None:
    """Update the coefficients of all labels, and the scores that they give, in place.

    gram (m, m) are inner products; labels (m,), any other number than that of a row is none of
    the rows'; costs (m,) are 2C of each image, and an image of cost 0 is given coefficients of
    0. coefficients and scores are (n_labels, m); scores may be of other images too.
    """
    n_labels, n_images = coefficients.shape
    for label in range(n_labels):
        own, reached = coefficients[label], scores[label]
        for _ in range(sweeps):
            for i in range(n_images):
                sign = np.float32(1 if labels[i] == label else -1)
                missing = costs[i] * (sign - reached[i]) - own[i]
                value = own[i] + missing / (costs[i] * gram[i, i] + np.float32(1))
                if value * sign < 0:
                    value = np.float32(0)
                change = value - own[i]
                if change != 0:
                    own[i] = value
                    row = gram[i]
                    for j in range(n_images):
                        reached[j] += change * row[j]
