"""Which atoms each leaf or group may use: SOMP over its descriptors (Algorithm 1).

The products of descriptors and dictionary, nearly all of the arithmetic, go to BLAS
in blocks of whole leaves; see `kernels/somp.py` for the rest. A group too large for
that, glued from many leaves, is read in passes, one for each atom that it chooses.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from service.engine.arrays import Float32Array, Float64Array, Int32Array, frozen
from trainer.data.scratch import reordered
from trainer.learn.kernels.somp import NEGLIGIBLE, SMALLEST_NEW_PART, choose_atoms
from trainer.parallel import map_ordered, one_blas_thread

__all__ = [
    "LeafGroups",
    "blocks_of_leaves",
    "choose_active_sets",
    "each_alone",
    "group_by_leaf",
    "nearest_populated",
    "nearest_populated_of",
]

# Correlations of a block, this many floats, are what one thread holds at a time.
_BLOCK_FLOATS = 2**22
# A single leaf may take this many, 256 MB, before it is read in passes instead.
_LEAF_FLOATS = 2**26


@dataclass(frozen=True)
class LeafGroups:
    """Descriptors (n, d) sorted by leaf; those of leaf i are [starts[i], starts[i + 1]).

    They are coded by `wide` directions or by narrow ones, see `engine/fixedpoint.py`.
    """

    descriptors: Float32Array
    leaf_ids: Int32Array
    starts: Int32Array
    wide: bool = True

    @property
    def populated(self) -> Int32Array:
        """Leaves that hold at least one descriptor."""
        return np.flatnonzero(np.diff(self.starts)).astype(np.int32)

    def members(self, leaf: int) -> slice:
        """Where the descriptors of `leaf` stand."""
        return slice(int(self.starts[leaf]), int(self.starts[leaf + 1]))

    def only(self, leaves: Int32Array) -> "LeafGroups":
        """The descriptors of these leaves, which must be ascending, numbered from zero."""
        kept = np.flatnonzero(np.isin(self.leaf_ids, leaves))
        new_ids = np.searchsorted(leaves, self.leaf_ids[kept]).astype(np.int32)
        starts = np.searchsorted(new_ids, np.arange(len(leaves) + 1)).astype(np.int32)
        return replace(
            self,
            descriptors=frozen(reordered(self.descriptors, kept)),
            leaf_ids=new_ids,
            starts=starts,
        )


def group_by_leaf(
    descriptors: Float32Array, leaf_ids: Int32Array, n_leaves: int, *, wide: bool = True
) -> LeafGroups:
    """Descriptors (n, d) brought into the order of their leaves."""
    order = np.argsort(leaf_ids, kind="stable")
    counts = np.bincount(leaf_ids, minlength=n_leaves)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return LeafGroups(frozen(reordered(descriptors, order)), leaf_ids[order], starts, wide)


def each_alone(descriptors: Float32Array, *, wide: bool = True) -> LeafGroups:
    """Every descriptor (n, d) as a leaf of its own, without a copy: no hash is given."""
    numbers = np.arange(descriptors.shape[0] + 1, dtype=np.int32)
    return LeafGroups(frozen(descriptors), numbers[:-1], numbers, wide)


def choose_active_sets(groups: LeafGroups, dictionary: Float32Array, nonzeros: int) -> Int32Array:
    """Look-up table (leaves, nonzeros): the atoms chosen by SOMP in every leaf.

    A leaf without descriptors lies below a branch that stopped early, and takes the
    active set of the populated leaf before it, which is that branch's own.
    """
    gram = frozen(dictionary @ dictionary.T)
    n_leaves = groups.starts.shape[0] - 1
    table = np.zeros((n_leaves, nonzeros), np.int32)

    def choose(block: Int32Array) -> None:
        first = groups.starts[block[0]]
        inside = slice(first, groups.starts[block[-1] + 1])
        correlations = groups.descriptors[inside] @ dictionary.T
        for leaf in block:
            begin, end = groups.starts[leaf] - first, groups.starts[leaf + 1] - first
            choose_atoms(correlations[begin:end], gram, table[leaf])

    blocks: list[Int32Array] = []
    large: list[Int32Array] = []
    largest = max(1, _LEAF_FLOATS // dictionary.shape[0])
    for block in blocks_of_leaves(groups, dictionary.shape[0]):
        too_large = groups.starts[block[-1] + 1] - groups.starts[block[0]] > largest
        (large if too_large else blocks).append(block)
    with one_blas_thread():  # each of our threads is one product's only thread
        deque(map_ordered(choose, blocks, "active sets"), maxlen=0)
        for (leaf,) in large:
            members = groups.descriptors[groups.members(leaf)]
            table[leaf] = _choose_in_passes(members, dictionary, nonzeros)
    return table[nearest_populated(groups)]


def _choose_in_passes(members: Float32Array, dictionary: Float32Array, nonzeros: int) -> list[int]:
    """The same choice as the kernel's, for any number of descriptors (n, d).

    A residual's products with the atoms are those of the descriptor with the parts of
    the atoms outside the span of the chosen ones, so each pass is one product again.
    """
    outside = dictionary.astype(np.float64)
    initial = sums = _summed_magnitudes(members, outside)
    chosen: list[int] = []
    for _ in range(nonzeros):
        if chosen:
            sums = _summed_magnitudes(members, outside)
        if sums.max() <= NEGLIGIBLE * initial.max():
            sums = initial
        lengths = np.linalg.norm(outside, axis=1)
        allowed = np.where(lengths**2 > SMALLEST_NEW_PART, sums, -1)
        allowed[chosen] = -1
        if allowed.max() < 0:
            chosen.append(min(set(range(len(outside))) - set(chosen)))
            continue
        atom = int(allowed.argmax())
        chosen.append(atom)
        direction = outside[atom] / lengths[atom]
        outside -= np.outer(outside @ direction, direction)
    return chosen


def _summed_magnitudes(members: Float32Array, atoms: Float64Array) -> Float64Array:
    """Σ|xᵀw| over the descriptors, for every atom (K,)."""
    transposed = atoms.T.astype(np.float32)
    rows = max(1, _BLOCK_FLOATS // atoms.shape[0])

    def sum_rows(begin: int) -> Float64Array:
        products = members[begin : begin + rows] @ transposed
        sums: Float32Array = np.abs(products, out=products).sum(axis=0)
        return sums.astype(np.float64)

    starts = range(0, members.shape[0], rows)
    total: Float64Array = np.sum(list(map_ordered(sum_rows, starts, "large group")), axis=0)
    return total


def blocks_of_leaves(groups: LeafGroups, floats_per_row: int) -> Iterator[Int32Array]:
    """Runs of populated leaves whose descriptors fit a block, or single larger leaves."""
    populated = groups.populated
    ends = groups.starts[populated + 1]
    rows = max(1, _BLOCK_FLOATS // floats_per_row)
    start = 0
    while start < len(populated):
        limit = groups.starts[populated[start]] + rows
        stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")))
        yield populated[start:stop]
        start = stop


def nearest_populated(groups: LeafGroups) -> Int32Array:
    """For every leaf the nearest populated one at or before it (the first if none is)."""
    return nearest_populated_of(groups.populated, groups.starts.shape[0] - 1)


def nearest_populated_of(populated: Int32Array, n_leaves: int) -> Int32Array:
    """The same of the numbers of the populated leaves, and of how many leaves there are."""
    before = np.searchsorted(populated, np.arange(n_leaves), side="right") - 1
    nearest: Int32Array = populated[np.maximum(before, 0)]
    return nearest
