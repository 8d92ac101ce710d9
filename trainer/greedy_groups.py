"""The modified OMP for groups too many to list (section 2.1).

Given an active set Ω, the atoms that may join it are the union of all groups that
contain Ω, and only a subroutine that answers this union is asked. Every active set
therefore lies within a group. Being greedy, it does not promise that the energy falls.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from trainer.groups import GroupCodes

__all__ = ["Available", "GreedyGroups"]

Available = Callable[[frozenset[int]], Collection[int]]
Rows = npt.NDArray[np.int64]

# A residual that no allowed atom lowers by more than this share of x is left alone.
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class GreedyGroups:
    """`available(Ω)` is the union of all groups that contain Ω; codes have up to `nonzeros`."""

    available: Available
    nonzeros: int
    has_costs: bool = False

    def encode(self, descriptors: Float32Array, dictionary: Float64Array) -> GroupCodes:
        """Codes of descriptors (n, d) over atoms (K, d) of unit norm."""
        shape = (len(descriptors), self.nonzeros)
        codes = GroupCodes(np.zeros(shape, np.int32), np.zeros(shape), np.zeros(len(descriptors)))
        for active, rows in self.choose(descriptors, dictionary).items():
            x, atoms = descriptors[rows].astype(np.float64), sorted(active)
            values = x @ np.linalg.pinv(dictionary[atoms])
            residuals = x - values @ dictionary[atoms]
            codes.atom_ids[rows, : len(atoms)] = atoms
            codes.values[rows, : len(atoms)] = values
            codes.energies[rows] = (residuals * residuals).sum(axis=1)
        return codes

    def choose(
        self, descriptors: Float32Array, dictionary: Float64Array
    ) -> dict[frozenset[int], Rows]:
        """Active sets, and which descriptors (n, d) ended with each.

        Descriptors with the same active set so far take the next step together: the
        subroutine is asked once for each set, and the products go to BLAS.
        """
        done: dict[frozenset[int], Rows] = {}
        growing = {frozenset[int](): np.arange(len(descriptors))}
        for _ in range(self.nonzeros):
            grown: dict[frozenset[int], Rows] = {}
            for active, rows in growing.items():
                for atom, members in self._extend(descriptors, dictionary, active, rows):
                    sets, key = (done, active) if atom is None else (grown, active | {atom})
                    sets[key] = np.concatenate([sets.get(key, rows[:0]), members])
            growing = grown
        for active, rows in growing.items():
            done[active] = np.concatenate([done.get(active, rows[:0]), rows])
        return done

    def _extend(
        self,
        descriptors: Float32Array,
        dictionary: Float64Array,
        active: frozenset[int],
        rows: Rows,
    ) -> Iterator[tuple[int | None, Rows]]:
        """The next atom and the descriptors that chose it; None for those that are done."""
        allowed = np.array(sorted(set(self.available(active)) - active), np.int64)
        if not allowed.size:
            yield None, rows
            return
        x = descriptors[rows].astype(np.float64)
        sizes = np.abs(x @ _outside(dictionary[allowed], dictionary[sorted(active)]).T)
        best = sizes.argmax(axis=1)
        best[sizes.max(axis=1) <= _NEGLIGIBLE * np.linalg.norm(x, axis=1)] = -1
        for place in np.unique(best):
            yield None if place < 0 else int(allowed[place]), rows[best == place]


def _outside(candidates: Float64Array, chosen: Float64Array) -> Float64Array:
    """The parts (k, d) of the candidates outside the span of the chosen atoms."""
    if not len(chosen):
        return candidates
    _, sizes, directions = np.linalg.svd(chosen, full_matrices=False)
    basis = directions[sizes > _NEGLIGIBLE * sizes[0]] if sizes[0] > 0 else directions[:0]
    outside: Float64Array = candidates - (candidates @ basis.T) @ basis
    return outside
