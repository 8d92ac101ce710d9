"""The modified OMP for groups too many to try (section 2.1).

Given an active set Ω, the atoms that may join it are the union of all groups that
contain Ω, and only a subroutine that answers this union is asked. Every active set
therefore lies within a group. Being greedy, it does not promise that the energy falls.
The descriptors of a hash bucket choose each next atom together, as in SOMP.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache, reduce

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from trainer.given.groups import GivenGroups, GroupCodes, given_groups
from trainer.learn.somp import LeafGroups, blocks_of_leaves, each_alone, nearest_populated

__all__ = ["Available", "GreedyGroups", "available_in"]

Available = Callable[[frozenset[int]], Collection[int]]
Rows = npt.NDArray[np.int64]

# A residual that no allowed atom lowers by more than this share of x is left alone.
_NEGLIGIBLE = 1e-9
# Descriptors that are in memory in float64 at a time.
_ROWS = 2**12


@dataclass(frozen=True)
class GreedyGroups:
    """`available(Ω)` is the union of all groups that contain Ω; codes have up to `nonzeros`."""

    available: Available
    nonzeros: int
    has_costs: bool = False

    def encode(self, descriptors: Float32Array, dictionary: Float64Array) -> GroupCodes:
        """Codes of descriptors (n, d) over atoms (K, d) of unit norm."""
        return self.encode_together(each_alone(descriptors), dictionary)

    def encode_together(self, buckets: LeafGroups, dictionary: Float64Array) -> GroupCodes:
        """Codes of all descriptors, those of a leaf with the same active set."""
        n = len(buckets.descriptors)
        shape = (n, self.nonzeros)
        codes = GroupCodes(np.zeros(shape, np.int32), np.zeros(shape), np.zeros(n))
        for active, leaves in self.choose_together(buckets, dictionary).items():
            atoms = sorted(active)
            inverse = np.linalg.pinv(dictionary[atoms])
            for rows in _chunks(_rows_of(buckets, leaves)):
                x = buckets.descriptors[rows].astype(np.float64)
                values = x @ inverse
                residuals = x - values @ dictionary[atoms]
                codes.atom_ids[rows, : len(atoms)] = atoms
                codes.values[rows, : len(atoms)] = values
                codes.energies[rows] = (residuals * residuals).sum(axis=1)
        return codes

    def of_leaves(self, buckets: LeafGroups, dictionary: Float64Array) -> GivenGroups:
        """The active set of each leaf; leaves of zeros, which need none, get an allowed atom."""
        first = min(self.available(frozenset()))
        groups = [[first] for _ in buckets.starts[1:]]
        for active, leaves in self.choose_together(buckets, dictionary).items():
            for leaf in leaves:
                groups[leaf] = sorted(active) or [first]
        filled = [groups[leaf] for leaf in nearest_populated(buckets)]
        return given_groups(filled, width=self.nonzeros)

    def choose(
        self, descriptors: Float32Array, dictionary: Float64Array
    ) -> dict[frozenset[int], Rows]:
        """Active sets, and which descriptors (n, d) ended with each."""
        return self.choose_together(each_alone(descriptors), dictionary)

    def choose_together(
        self, buckets: LeafGroups, dictionary: Float64Array
    ) -> dict[frozenset[int], Rows]:
        """Active sets, and which populated leaves ended with each.

        Leaves with the same active set so far take the next step together: the
        subroutine is asked once for each set, and the products go to BLAS.
        """
        cached = GreedyGroups(cache(self.available), self.nonzeros)
        chosen: dict[frozenset[int], list[Rows]] = {}
        for block in blocks_of_leaves(buckets, len(dictionary)):
            for active, leaves in cached._choose_block(buckets, dictionary, block).items():
                chosen.setdefault(active, []).append(leaves)
        return {active: np.concatenate(parts) for active, parts in chosen.items()}

    def _choose_block(
        self, buckets: LeafGroups, dictionary: Float64Array, block: npt.NDArray[np.integer]
    ) -> dict[frozenset[int], Rows]:
        done: dict[frozenset[int], Rows] = {}
        growing = {frozenset[int](): block.astype(np.int64)}
        for _ in range(self.nonzeros):
            grown: dict[frozenset[int], Rows] = {}
            for active, leaves in growing.items():
                for atom, members in self._extend(buckets, dictionary, active, leaves):
                    sets, key = (done, active) if atom is None else (grown, active | {atom})
                    sets[key] = np.union1d(sets.get(key, leaves[:0]), members)
            growing = grown
        for active, leaves in growing.items():
            done[active] = np.union1d(done.get(active, leaves[:0]), leaves)
        return done

    def _extend(
        self,
        buckets: LeafGroups,
        dictionary: Float64Array,
        active: frozenset[int],
        leaves: Rows,
    ) -> Iterator[tuple[int | None, Rows]]:
        """The next atom and the leaves that chose it; None for those that are done."""
        allowed = np.array(sorted(set(self.available(active)) - active), np.int64)
        if not allowed.size:
            yield None, leaves
            return
        candidates = _outside(dictionary[allowed], dictionary[sorted(active)])
        sums, norms = np.zeros((len(leaves), len(allowed))), np.zeros(len(leaves))
        for rows in _chunks(_rows_of(buckets, leaves)):
            x = buckets.descriptors[rows].astype(np.float64)
            places = np.searchsorted(leaves, buckets.leaf_ids[rows])
            starts = np.flatnonzero(np.diff(places, prepend=-1))  # of each leaf in this chunk
            sums[places[starts]] += np.add.reduceat(np.abs(x @ candidates.T), starts)
            norms[places[starts]] += np.add.reduceat(np.linalg.norm(x, axis=1), starts)
        best = sums.argmax(axis=1)
        best[sums.max(axis=1) <= _NEGLIGIBLE * norms] = -1
        for place in np.unique(best):
            yield None if place < 0 else int(allowed[place]), leaves[best == place]


def available_in(groups: GivenGroups) -> Available:
    """The subroutine for listed groups: the union of all that contain an active set."""
    present = groups.present > 0
    rows, places = np.nonzero(present)
    atoms = groups.table[rows, places]
    containing = {int(atom): rows[atoms == atom] for atom in np.unique(atoms)}
    none = np.arange(0)

    def union(active: frozenset[int]) -> list[int]:
        every: list[int] = list(containing)
        if not active:
            return every
        holders = reduce(np.intersect1d, (containing.get(atom, none) for atom in active))
        found: list[int] = np.unique(groups.table[holders][present[holders]]).tolist()
        return found

    return union


def _rows_of(buckets: LeafGroups, leaves: Rows) -> Rows:
    """Where the descriptors of these leaves stand, leaf by leaf."""
    begins, ends = buckets.starts[leaves].astype(np.int64), buckets.starts[leaves + 1]
    counts = ends - begins
    before = np.cumsum(counts) - counts
    return np.repeat(begins - before, counts) + np.arange(counts.sum())


def _chunks(rows: Rows) -> Iterator[Rows]:
    """The rows in order, at most `_ROWS` at a time."""
    for begin in range(0, len(rows), _ROWS):
        yield rows[begin : begin + _ROWS]


def _outside(candidates: Float64Array, chosen: Float64Array) -> Float64Array:
    """The parts (k, d) of the candidates outside the span of the chosen atoms."""
    if not len(chosen):
        return candidates
    _, sizes, directions = np.linalg.svd(chosen, full_matrices=False)
    basis = directions[sizes > _NEGLIGIBLE * sizes[0]] if sizes[0] > 0 else directions[:0]
    outside: Float64Array = candidates - (candidates @ basis.T) @ basis
    return outside
