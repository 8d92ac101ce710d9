"""Training images that show almost the same: bursts, crops, files saved twice.

A fold that holds out one of them while another one trains is no test. So they are found by the
inner products of their pooled vectors, which training has anyway, and never parted.
"""

import numpy as np

from service.engine.arrays import Float32Array, Float64Array
from trainer.metrics import Labels

__all__ = ["near_duplicate_groups"]

# How far from the median of a class towards one the inner product of near-duplicates is at least.
# Crops by 10 % of a photograph are nearer in 95 of 100 cases, other images of its class further
# in 97 of 100 (400 images of 20 classes of Caltech 101, all blocks, where the median is .2).
_NEAR = 0.5


def near_duplicate_groups(similarities: Float32Array | Float64Array, labels: Labels) -> Labels:
    """A number (n,) for each image, the same for near-duplicates and those of these in turn.

    similarities (n, n) are inner products of vectors of unit length. How alike different images
    are depends on the class and on the features: half of the pairs of a class, and half of the
    way from those to equal images, tell. In a class that is one burst nothing is found.
    """
    from scipy.sparse import csr_array  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    limits = _limits(similarities, labels)
    near = similarities > np.maximum(limits[:, np.newaxis], limits)
    return np.asarray(connected_components(csr_array(near), directed=False)[1], np.int64)


def _limits(similarities: Float32Array | Float64Array, labels: Labels) -> Float64Array:
    """What the inner product of each image (n,) with its near-duplicates exceeds."""
    limits = np.ones(len(labels))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        pairs = similarities[np.ix_(own, own)][np.triu_indices(len(own), 1)]
        if len(pairs):
            median = float(np.median(pairs))
            limits[own] = median + _NEAR * (1 - median)
    return limits
