"""The loops of the learned tree: walks from any node, and better decisions for one node.

A node's decision is fitted to gains: how much cheaper each member is on the right
side. Those of the fit choose direction and cut, those held out choose between the
candidates and what the node has already.
"""

import numpy as np

from service.engine.arrays import Directions, FixedRows, Float32Array, Float64Array, Int32Array
from service.engine.compiling import allocating_kernel, kernel, part
from service.engine.kernels.integers import BATCH, LANES, Scratch, add_dots

__all__ = ["refit_decision", "walk_from"]

_LANES, _BATCH = np.uint64(LANES), np.uint64(BATCH)
_NONE, _ONE = np.uint64(0), np.uint64(1)

# Cosines end at one, so these thresholds send all members left, or all right.
_ALL_LEFT = np.float32(2)
_ALL_RIGHT = np.float32(-2)
# The offset of a regression is all but free.
_OFFSET_RIDGE = 1e-3
_SMALLEST_NORM = np.float32(1e-12)


@kernel
def walk_from(
    directions: Directions,
    norms: Float32Array,
    vectors: FixedRows,
    cuts: Float32Array,
    nodes: Int32Array,
    scratch: Scratch,
    leaf_ids: Int32Array,
) -> None:
    """Leaf of every descriptor that starts at its own node, all of one level, not at the root.

    Descriptors in fixed point, directions (n, w) and norms (n,), as in `walk`; nodes (n,);
    vectors (inner nodes, w), cuts (inner nodes,); scratch for a batch -> leaf_ids (n,).
    """
    n_inner = np.uint64(vectors.shape[0])
    n, width = np.uint64(directions.shape[0]), np.uint64(vectors.shape[1])
    for start in range(_NONE, n, _BATCH):
        size = min(_BATCH, n - start)
        for i in range(_BATCH):  # those beyond the end are one of the others again
            scratch.rows[i] = start + i if i < size else start
            scratch.others[i] = np.uint64(nodes[scratch.rows[i]])
        while scratch.others[_NONE] < n_inner:
            for column in range(_NONE, width, _LANES):
                add_dots(directions, vectors, scratch, _NONE, column)
            for i in range(_BATCH):
                node, norm = scratch.others[i], norms[scratch.rows[i]]
                right = np.float32(scratch.products[i]) > cuts[node] * norm and norm > 0
                scratch.others[i] = node + node + _ONE + np.uint64(right)
        for i in range(size):
            leaf_ids[start + i] = scratch.others[i] - n_inner


@part
def _unit_rows(descriptors: Float32Array, norms: Float32Array, members: Int32Array) -> Float32Array:
    rows = np.empty((members.shape[0], descriptors.shape[1]), np.float32)
    for i in range(members.shape[0]):
        scale = np.float32(1) / max(norms[members[i]], _SMALLEST_NORM)
        for k in range(rows.shape[1]):
            rows[i, k] = descriptors[members[i], k] * scale
    return rows


@part
def _centred(rows: Float32Array) -> Float32Array:
    total = np.zeros(rows.shape[1], np.float64)
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            total[k] += rows[i, k]
    mean = (total / rows.shape[0]).astype(np.float32)
    centred = np.empty_like(rows)
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            centred[i, k] = rows[i, k] - mean[k]
    return centred


@part
def _project(rows: Float32Array, vector: Float32Array) -> Float32Array:
    projections = np.empty(rows.shape[0], np.float32)
    for i in range(rows.shape[0]):
        projection = np.float32(0)
        for k in range(rows.shape[1]):
            projection += rows[i, k] * vector[k]
        projections[i] = projection
    return projections


@part
def _best_cut(projections: Float32Array, gains: Float32Array) -> np.float32:
    """The threshold above which the gains add up to the most; beyond all if none is worth it."""
    order = np.argsort(-projections)
    total, best, cut = 0.0, 0.0, _ALL_LEFT
    for i in range(order.shape[0]):
        total += gains[order[i]]
        here = projections[order[i]]
        if i + 1 == order.shape[0]:
            if total > best:
                cut = _ALL_RIGHT
        else:
            below = projections[order[i + 1]]
            if total > best and here > below:  # equal projections cannot be parted
                best = total
                cut = np.float32((here + below) / 2)
    return cut


@part
def _gain(rows: Float32Array, gains: Float32Array, vector: Float32Array, cut: np.float32) -> float:
    """What those who go right save."""
    projections = _project(rows, vector)
    total = 0.0
    for i in range(rows.shape[0]):
        if projections[i] > cut:
            total += gains[i]
    return total


@part
def _direction(coefficients: Float64Array, vector: Float32Array) -> bool:
    """The first d coefficients at unit length, if they have any."""
    length = 0.0
    for k in range(vector.shape[0]):
        length += coefficients[k] ** 2
    length = np.sqrt(length)
    usable = bool(length > 0 and np.isfinite(length))
    if usable:
        for k in range(vector.shape[0]):
            vector[k] = coefficients[k] / length
    return usable


@part
def _ridge_step(
    rows: Float32Array,
    curvatures: Float32Array,
    slopes: Float32Array,
    ridge: float,
    coefficients: Float64Array,
) -> None:
    """One Newton step of a regression with a ridge, the offset last in the coefficients.

    rows (n, d) centred; curvatures, slopes (n,) of the loss with respect to the margin.
    """
    n, width = rows.shape
    scaled = np.empty((n, width), np.float32)
    system = np.empty((width + 1, width + 1), np.float64)
    gradient = np.empty(width + 1, np.float64)
    for i in range(n):
        for k in range(width):
            scaled[i, k] = rows[i, k] * curvatures[i]
    products = np.dot(rows.T, scaled)
    along = np.dot(rows.T, curvatures)
    ascent = np.dot(rows.T, slopes)
    system[width, width] = _OFFSET_RIDGE
    gradient[width] = -_OFFSET_RIDGE * coefficients[width]
    for i in range(n):
        system[width, width] += curvatures[i]
        gradient[width] += slopes[i]
    for k in range(width):
        for other in range(width):
            system[k, other] = products[k, other]
        system[k, k] += ridge
        system[k, width] = along[k]
        system[width, k] = along[k]
        gradient[k] = ascent[k] - ridge * coefficients[k]
    coefficients += np.linalg.solve(system, gradient)


@part
def _logistic_slopes(
    rows: Float32Array,
    gains: Float32Array,
    scale: np.float32,
    coefficients: Float64Array,
    curvatures: Float32Array,
    slopes: Float32Array,
) -> None:
    """Derivatives of the logistic loss of the gains' signs, weighted by scale times size."""
    width = rows.shape[1]
    margins = _project(rows, coefficients[:width].astype(np.float32))
    offset = np.float32(coefficients[width])
    for i in range(rows.shape[0]):
        sign = np.float32(1) if gains[i] > 0 else np.float32(-1)
        weight = abs(gains[i]) * scale
        margin = min(max(sign * (margins[i] + offset), np.float32(-30)), np.float32(30))
        miss = np.float32(1) / (np.float32(1) + np.exp(margin))
        slopes[i] = weight * sign * miss
        curvatures[i] = weight * miss * (np.float32(1) - miss)


@allocating_kernel
def refit_decision(
    descriptors: Float32Array,
    norms: Float32Array,
    gains: Float32Array,
    fitted: Int32Array,
    held_out: Int32Array,
    ridges: Float64Array,
    vector: Float32Array,
    threshold: Float32Array,
) -> bool:
    """A better decision for one node, if it is better on the held-out members too.

    descriptors (n, d); norms and gains (n,); fitted and held_out are members of the
    node; ridges fall, each fit starts from the one before. vector (d,) and threshold
    (1,) are overwritten by the decision that gains most on the held-out ones; False: kept.
    """
    width = descriptors.shape[1]
    units = _unit_rows(descriptors, norms, fitted)
    held_out_rows = _unit_rows(descriptors, norms, held_out)
    own, held_out_gains = gains[fitted], gains[held_out]
    total = 0.0
    for i in range(own.shape[0]):
        total += abs(own[i])
    if total == 0:
        return False
    # A mean weight of one, so that one set of ridges suits all nodes.
    scale = np.float32(own.shape[0] / total)
    centred = _centred(units)
    curvatures, slopes = np.empty_like(own), np.empty_like(own)
    coefficients = np.zeros(width + 1, np.float64)
    candidate = np.empty(width, np.float32)
    best = _gain(held_out_rows, held_out_gains, vector, threshold[0])
    better = False
    for step in range(ridges.shape[0]):
        _logistic_slopes(centred, own, scale, coefficients, curvatures, slopes)
        _ridge_step(centred, curvatures, slopes, ridges[step], coefficients)
        if not _direction(coefficients, candidate):
            continue
        cut = _best_cut(_project(units, candidate), own)
        found = _gain(held_out_rows, held_out_gains, candidate, cut)
        if found > best:
            best, better = found, True
            vector[:] = candidate
            threshold[0] = cut
    return better
