"""Training images that show almost the same: bursts, crops, files saved twice.

A fold that holds out one of them while another one trains is no test. So they are found by the
inner products of their pooled vectors, which training has anyway, and never parted.
"""

import itertools
import logging
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from trainer.metrics import Labels

__all__ = ["log_groups", "near_duplicate_groups", "near_duplicate_groups_of_many"]

logger = logging.getLogger(__name__)

# How far from the median of a class towards one the inner product of near-duplicates is at least.
# Of 80 photographs of ten classes of Caltech 101, each ten times with crops of up to 8 % a side,
# one is parted and two are joined at .4, whether of 100 or 120 pixels; at .5, 23 and 4 are parted,
# which made folds of 100 pixels say .93 in place of .86. Of 3030 images of 101 classes, none of
# them cropped, .4 joins 118 to others, .5 98 and .35 150.
_NEAR = 0.4

# Of many images: so many of a class tell its median, and so many are compared at a time.
_TELLING = 1000
_BLOCK_ROWS = 2048

Pairs = npt.NDArray[np.int64]


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


def near_duplicate_groups_of_many(sketches: Float32Array, labels: Labels) -> Labels:
    """The same for images with sketches (n, any) of unit length that have about their products.

    Products are made block by block, and of the pairs that were found not many more are kept
    than there are images.
    """
    limits = np.ones(len(labels))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        telling = own[:: -(-len(own) // _TELLING)]
        limits[own] = _limits(sketches[telling] @ sketches[telling].T, labels[telling])[0]
    groups = np.arange(len(labels))
    found: list[Pairs] = []
    for pairs in _near_pairs(sketches, limits):
        found.append(pairs)
        if sum(map(len, found)) > len(labels):
            groups, found = _joined(groups, found), []
    return _joined(groups, found)


def _near_pairs(sketches: Float32Array, limits: Float64Array) -> Iterator[Pairs]:
    """Places (any, 2) of near-duplicates."""
    starts = range(0, len(sketches), _BLOCK_ROWS)
    for top, left in itertools.combinations_with_replacement(starts, 2):
        rows, columns = slice(top, top + _BLOCK_ROWS), slice(left, left + _BLOCK_ROWS)
        least = np.maximum(limits[rows, np.newaxis], limits[columns])
        near = sketches[rows] @ sketches[columns].T > least
        yield np.argwhere(near) + np.array([top, left])


def _joined(groups: Labels, found: list[Pairs]) -> Labels:
    """Groups (n,) that also hold the pairs of images that were found."""
    from scipy.sparse import coo_array  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    members = np.unique(groups, return_index=True)[1][groups]  # the first one of each group
    known = np.column_stack([np.arange(len(groups)), members])
    pairs = np.concatenate([known, *found])
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (len(groups),) * 2)
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


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


def log_groups(groups: Labels) -> None:
    """Count the images that are not alone in their group."""
    sizes = np.bincount(groups)
    if (sizes > 1).any():
        logger.info(
            "%d images are near-duplicates of others, in %d groups that folds do not part",
            sizes[sizes > 1].sum(),
            (sizes > 1).sum(),
        )
