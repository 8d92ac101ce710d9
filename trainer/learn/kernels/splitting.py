"""One split of the 2-means tree (section 2.3): centres, direction, median, partition."""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array
from service.engine.compiling import allocating_kernel, part

__all__ = ["split_node"]


@part
def _farthest(descriptors: Float32Array, members: Int32Array, centre: Float32Array) -> int:
    """The member farthest from `centre`, the first of them where several are."""
    best, best_distance = 0, np.float32(-1)
    for i in range(members.shape[0]):
        distance = np.float32(0)
        for k in range(centre.shape[0]):
            difference = descriptors[members[i], k] - centre[k]
            distance += difference * difference
        if distance > best_distance:
            best, best_distance = i, distance
    return best


@part
def _mean(descriptors: Float32Array, members: Int32Array, centre: Float32Array) -> None:
    total = np.zeros(centre.shape[0], np.float64)
    for i in range(members.shape[0]):
        for k in range(total.shape[0]):
            total[k] += descriptors[members[i], k]
    for k in range(total.shape[0]):
        centre[k] = total[k] / members.shape[0]


@part
def _distance(first: Float32Array, second: Float32Array) -> float:
    squared = 0.0
    for k in range(first.shape[0]):
        squared += (first[k] - second[k]) ** 2
    return float(np.sqrt(squared))


@part
def _lloyd(descriptors: Float32Array, members: Int32Array, centres: Float32Array) -> None:
    """One round of 2-means: every member to its nearer centre, centres to their means."""
    width = centres.shape[1]
    offset = 0.0
    for k in range(width):
        offset += (centres[0, k] ** 2 - centres[1, k] ** 2) / 2
    totals = np.zeros((2, width), np.float64)
    counts = np.zeros(2, np.int64)
    for i in range(members.shape[0]):
        projection = np.float32(0)
        for k in range(width):
            projection += descriptors[members[i], k] * (centres[0, k] - centres[1, k])
        side = 0 if projection > offset else 1
        counts[side] += 1
        for k in range(width):
            totals[side, k] += descriptors[members[i], k]
    if counts[0] and counts[1]:
        for side in range(2):
            for k in range(width):
                centres[side, k] = totals[side, k] / counts[side]


@part
def _threshold_near_median(ordered: Float32Array) -> np.float32:
    """A value with members on both sides, as near the median as ties allow, else NaN."""
    middle = ordered.shape[0] // 2
    for shift in range(ordered.shape[0]):
        for i in (middle - shift, middle + shift):
            if 0 < i < ordered.shape[0] and ordered[i - 1] < ordered[i]:
                between = np.float32((ordered[i - 1] + ordered[i]) / 2)
                return between if between < ordered[i] else np.float32(ordered[i - 1])
    return np.float32(np.nan)


@allocating_kernel
def split_node(
    descriptors: Float32Array,
    norms: Float32Array,
    members: Int32Array,
    rounds: int,
    radius: float,
    vector: Float32Array,
) -> tuple[int, np.float32]:
    """Split `members` in two at the median angle to the line between two centres.

    Centres start by farthest insertion: the member farthest from the mean, then the
    one farthest from it. Returns how many went left and the threshold; `members` is
    reordered, left side first. A node within `radius` of its mean, or one whose
    members all have the same angle, is not split: all go left and `vector` stays zero.
    """
    n, width = members.shape[0], descriptors.shape[1]
    if n < 2:
        return n, np.float32(0)
    mean = np.empty(width, np.float32)
    centres = np.empty((2, width), np.float32)
    _mean(descriptors, members, mean)
    centres[0] = descriptors[members[_farthest(descriptors, members, mean)]]
    if _distance(centres[0], mean) <= radius:
        return n, np.float32(0)
    centres[1] = descriptors[members[_farthest(descriptors, members, centres[0])]]
    for _ in range(rounds):
        _lloyd(descriptors, members, centres)
    length = _distance(centres[0], centres[1])
    if length == 0:
        return n, np.float32(0)
    direction = ((centres[0] - centres[1]) / length).astype(np.float32)
    cosines = np.zeros(n, np.float32)
    for i in range(n):
        projection = np.float32(0)
        for k in range(width):
            projection += descriptors[members[i], k] * direction[k]
        if norms[members[i]] > 0:
            cosines[i] = projection / norms[members[i]]
    threshold = _threshold_near_median(np.sort(cosines))
    if np.isnan(threshold):
        return n, np.float32(0)
    vector[:] = direction
    ahead = members[cosines <= threshold]
    behind = members[cosines > threshold]
    members[: ahead.shape[0]] = ahead
    members[ahead.shape[0] :] = behind
    return ahead.shape[0], threshold
