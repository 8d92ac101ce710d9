"""Which atoms each leaf may use: SOMP over the descriptors of every leaf.

The products of descriptors and dictionary, nearly all of the arithmetic, go to BLAS
in blocks of whole leaves; see `kernels/somp.py` for the rest.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from service.engine.arrays import Float32Array, Int32Array, frozen
from trainer.kernels.somp import choose_atoms
from trainer.parallel import map_ordered

__all__ = ["LeafGroups", "choose_active_sets", "group_by_leaf"]

# Correlations of a block, this many floats, are what one thread holds at a time.
_BLOCK_FLOATS = 2**22


@dataclass(frozen=True)
class LeafGroups:
    """Descriptors (n, d) sorted by leaf; those of leaf i are [starts[i], starts[i + 1])."""

    descriptors: Float32Array
    leaf_ids: Int32Array
    starts: Int32Array

    @property
    def populated(self) -> Int32Array:
        """Leaves that hold at least one descriptor."""
        return np.flatnonzero(np.diff(self.starts)).astype(np.int32)

    def members(self, leaf: int) -> slice:
        """Where the descriptors of `leaf` stand."""
        return slice(int(self.starts[leaf]), int(self.starts[leaf + 1]))


def group_by_leaf(descriptors: Float32Array, leaf_ids: Int32Array, n_leaves: int) -> LeafGroups:
    """Descriptors (n, d) brought into the order of their leaves."""
    order = np.argsort(leaf_ids, kind="stable")
    counts = np.bincount(leaf_ids, minlength=n_leaves)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return LeafGroups(frozen(descriptors[order]), leaf_ids[order], starts)


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

    blocks = list(_blocks(groups, dictionary.shape[0]))
    with threadpool_limits(1, "blas"):  # each of our threads is one product's only thread
        deque(map_ordered(choose, blocks, "active sets"), maxlen=0)
    return table[_nearest_populated(groups)]


def _blocks(groups: LeafGroups, n_atoms: int) -> Iterator[Int32Array]:
    """Runs of populated leaves whose correlations fit a block (or single larger leaves)."""
    populated = groups.populated
    ends = groups.starts[populated + 1]
    rows = max(1, _BLOCK_FLOATS // n_atoms)
    start = 0
    while start < len(populated):
        limit = groups.starts[populated[start]] + rows
        stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")))
        yield populated[start:stop]
        start = stop


def _nearest_populated(groups: LeafGroups) -> Int32Array:
    """For every leaf the nearest populated one at or before it (the first if none is)."""
    populated = groups.populated
    leaves = np.arange(groups.starts.shape[0] - 1)
    before = np.searchsorted(populated, leaves, side="right") - 1
    nearest: Int32Array = populated[np.maximum(before, 0)]
    return nearest
