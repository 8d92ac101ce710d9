"""Training images that show almost the same: bursts, crops, files saved twice.

A fold that holds out one of them while another one trains is no test. So they are found by the
inner products of their pooled vectors, which training has anyway, and never parted.
"""

import numpy as np

from service.engine.arrays import Float32Array, Float64Array
from trainer.metrics import Labels

__all__ = ["near_duplicate_groups"]

# How far from the median of a class towards one the inner product of near-duplicates is at least.
# Of 80 photographs of ten classes of Caltech 101, each ten times with crops of up to 8 % a side,
# one is parted and two are joined at .4, whether of 100 or 120 pixels; at .5, 23 and 4 are parted,
# which made folds of 100 pixels say .93 in place of .86. Of 3030 images of 101 classes, none of
# them cropped, .4 joins 118 to others, .5 98 and .35 150.
_NEAR = 0.4


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
