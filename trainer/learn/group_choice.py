"""Step 1 of Algorithm 2: which group each bucket of descriptors belongs to.

All descriptors of a bucket choose together the group with the smallest summed
projection error (section 2.3); without a hash every descriptor is a bucket (section
2.2). A group that no bucket chose gets a random bucket, on which SOMP then regenerates it.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array, Int32Array, frozen
from service.engine.coding import invert_grams
from trainer.learn.kernels.groups import add_projection_energies
from trainer.learn.somp import (
    LeafGroups,
    blocks_of_leaves,
    choose_active_sets,
    group_by_leaf,
    nearest_populated,
)
from trainer.parallel import map_ordered, one_blas_thread

__all__ = ["GroupChoice", "best_groups", "choose_groups", "first_groups", "glue"]

# Descriptors whose products with all atoms stay in a core's cache while every group
# looks at them: 1 MB at 1024 atoms.
_TILE = 256


@dataclass(frozen=True)
class GroupChoice:
    """group_ids (leaves,), and the table (groups, m) by which each group codes its leaves now.

    The row of a group that no bucket chose is that of the group its bucket comes from.
    """

    group_ids: Int32Array
    table: Int32Array


def first_groups(
    buckets: LeafGroups,
    n_groups: int,
    dictionary: Float32Array,
    nonzeros: int,
    rng: np.random.Generator,
) -> Int32Array:
    """Table (groups, nonzeros) from SOMP on as many random buckets."""
    chosen = np.sort(rng.choice(buckets.populated, n_groups, replace=False))
    return choose_active_sets(buckets.only(chosen), dictionary, nonzeros)


def choose_groups(
    buckets: LeafGroups, table: Int32Array, dictionary: Float32Array, rng: np.random.Generator
) -> GroupChoice:
    """The group of every leaf, each group of table (groups, m) used by at least one.

    There must be at least as many populated leaves as groups. A leaf without
    descriptors follows the populated leaf before it.
    """
    inverses = invert_grams(table, dictionary.astype(np.float64)).astype(np.float64)
    best = best_groups(buckets, table, inverses, dictionary)
    group_ids, populated = best.copy(), buckets.populated
    group_ids[populated] = _occupy_unused(best[populated], table.shape[0], rng)
    moved = populated[group_ids[populated] != best[populated]]
    current = table.copy()
    current[group_ids[moved]] = table[best[moved]]
    return GroupChoice(group_ids[nearest_populated(buckets)], current)


def glue(buckets: LeafGroups, group_ids: Int32Array, n_groups: int) -> LeafGroups:
    """The descriptors by group (leaves,) instead of by leaf."""
    leaf_ids = group_ids[buckets.leaf_ids]
    return group_by_leaf(buckets.descriptors, leaf_ids, n_groups, wide=buckets.wide)


def best_groups(
    buckets: LeafGroups,
    table: Int32Array,
    inverses: Float64Array,
    dictionary: npt.NDArray[np.floating],
) -> Int32Array:
    """The group (leaves,) that keeps most of each leaf's energy, the first where several do.

    inverses (groups, m, m) are those of the Gram matrices, zero where a group has fewer
    than m atoms. Works in the precision of the dictionary. Leaves without descriptors
    answer zero.
    """
    factors = frozen(_factors(inverses).astype(dictionary.dtype))
    table, group_ids = frozen(table), np.zeros(buckets.starts.shape[0] - 1, np.int32)

    def choose(block: Int32Array) -> None:
        energies = np.zeros((table.shape[0], block.shape[0]), np.float64)
        end = int(buckets.starts[block[-1] + 1])
        for begin in range(int(buckets.starts[block[0]]), end, _TILE):
            tile = slice(begin, min(begin + _TILE, end))
            points = buckets.descriptors[tile].astype(dictionary.dtype, copy=False)
            places = np.searchsorted(block, buckets.leaf_ids[tile]).astype(np.int32)
            add_projection_energies(dictionary @ points.T, frozen(places), table, factors, energies)
        group_ids[block] = energies.argmax(axis=0)

    # An eighth of SOMP's blocks, whose energies stay in the cache: 16 % less CPU time at L=512.
    width = 8 * max(dictionary.shape[0], table.shape[0])
    with one_blas_thread():  # each of our threads is one product's only thread
        deque(map_ordered(choose, list(blocks_of_leaves(buckets, width)), "groups"), maxlen=0)
    return group_ids


def _factors(inverses: Float64Array) -> Float64Array:
    """F (groups, m, m) with FᵀF the given matrices, which may be singular."""
    eigenvalues, vectors = np.linalg.eigh(inverses)
    roots = np.sqrt(np.maximum(eigenvalues, 0))
    factors: Float64Array = roots[:, :, None] * vectors.transpose(0, 2, 1)
    return factors


def _occupy_unused(group_ids: Int32Array, n_groups: int, rng: np.random.Generator) -> Int32Array:
    """Every unused group takes a random bucket from a group that has several."""
    counts = np.bincount(group_ids, minlength=n_groups)
    unused = np.flatnonzero(counts == 0)
    if not unused.size:
        return group_ids
    occupied = group_ids.copy()
    order = iter(rng.permutation(len(occupied)))
    for group in unused:
        bucket = next(bucket for bucket in order if counts[occupied[bucket]] > 1)
        counts[occupied[bucket]] -= 1
        occupied[bucket] = group
        counts[group] = 1
    return occupied
