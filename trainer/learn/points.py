"""The descriptors that Algorithm 2 learns from, by leaf, wherever they are.

It asks for few things, and only for ones that are small however many descriptors there are: rows
that were drawn, active sets, a better dictionary, and what the codes of each leaf leave over.
`LocalPoints` has them all in this process; `trainer.cluster` asks many workers, each of which has
`LocalPoints` of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array, Int32Array
from service.engine.codes import Codes
from service.engine.coding import Coder
from trainer.learn.dictionary import (
    DictionaryUpdate,
    NormalEquations,
    missing_directions,
    normal_equations,
    residual_energies,
    update_dictionary,
)
from trainer.learn.somp import LeafGroups, choose_active_sets

__all__ = ["LocalPoints", "Points", "Residuals", "replace_unused_atoms"]


@dataclass(frozen=True)
class Residuals:
    """Σ‖x - Wz‖² of each leaf (leaves,), and of all descriptors."""

    by_leaf: Float64Array
    total: float


class Points(Protocol):
    """Descriptors in the order of their leaves. A table (leaves, m) has a row for each leaf."""

    @property
    def shape(self) -> tuple[int, int]:
        """How many descriptors there are, and how wide they are."""

    @property
    def n_leaves(self) -> int:
        """Leaves, with or without descriptors."""

    @property
    def wide(self) -> bool:
        """Whether they are coded by wide directions."""

    @property
    def populated(self) -> Int32Array:
        """Leaves that hold at least one descriptor."""

    @property
    def energy(self) -> float:
        """Σ‖x‖² of all descriptors."""

    def rows(self, places: npt.NDArray[np.int64]) -> Float32Array:
        """The descriptors at these ascending places."""

    def active_sets(self, dictionary: Float32Array, nonzeros: int) -> Int32Array:
        """The atoms that SOMP chooses in each leaf, a table."""

    def updated_dictionary(
        self, kind: DictionaryUpdate, table: Int32Array, dictionary: Float32Array
    ) -> Float32Array:
        """Better atoms for the active sets of a table."""

    def residuals(self, table: Int32Array, dictionary: Float32Array) -> Residuals:
        """What the codes by a table leave over."""

    def missing_directions(
        self, leaves: Int32Array, table: Int32Array, dictionary: Float32Array
    ) -> Sequence[Float32Array | None]:
        """See `dictionary.missing_directions`."""


@dataclass(frozen=True)
class LocalPoints:
    """Descriptors in memory or in a mapped file."""

    groups: LeafGroups

    @property
    def shape(self) -> tuple[int, int]:
        """How many descriptors there are, and how wide they are."""
        n, width = self.groups.descriptors.shape
        return n, width

    @property
    def n_leaves(self) -> int:
        """Leaves, with or without descriptors."""
        return len(self.groups.starts) - 1

    @property
    def wide(self) -> bool:
        """Whether they are coded by wide directions."""
        return self.groups.wide

    @property
    def populated(self) -> Int32Array:
        """Leaves that hold at least one descriptor."""
        return self.groups.populated

    @property
    def energy(self) -> float:
        """Σ‖x‖² of all descriptors."""
        x = self.groups.descriptors
        return float(np.einsum("ij,ij->", x, x, dtype=np.float64))

    def rows(self, places: npt.NDArray[np.int64]) -> Float32Array:
        """The descriptors at these ascending places."""
        rows: Float32Array = self.groups.descriptors[places]
        return rows

    def active_sets(self, dictionary: Float32Array, nonzeros: int) -> Int32Array:
        """The atoms that SOMP chooses in each leaf, a table."""
        return choose_active_sets(self.groups, dictionary, nonzeros)

    def updated_dictionary(
        self, kind: DictionaryUpdate, table: Int32Array, dictionary: Float32Array
    ) -> Float32Array:
        """Better atoms for the active sets of a table."""
        codes = self._codes(table, dictionary)
        return update_dictionary(kind, self.groups.descriptors, codes, dictionary)

    def normal_equations(self, table: Int32Array, dictionary: Float32Array) -> NormalEquations:
        """What these descriptors add to the system that the best atoms for a table solve."""
        codes = self._codes(table, dictionary)
        return normal_equations(self.groups.descriptors, codes, dictionary)

    def residuals(self, table: Int32Array, dictionary: Float32Array) -> Residuals:
        """What the codes by a table leave over."""
        codes = self._codes(table, dictionary)
        energies = residual_energies(self.groups.descriptors, codes, dictionary)
        by_leaf = np.bincount(self.groups.leaf_ids, energies, minlength=len(table))
        return Residuals(np.asarray(by_leaf, np.float64), float(energies.sum(dtype=np.float64)))

    def missing_directions(
        self, leaves: Int32Array, table: Int32Array, dictionary: Float32Array
    ) -> Sequence[Float32Array | None]:
        """See `dictionary.missing_directions`."""
        return missing_directions(self.groups, leaves, table, dictionary)

    def _codes(self, table: Int32Array, dictionary: Float32Array) -> Codes:
        coder = Coder.from_table(table, dictionary, wide=self.wide)
        return coder.encode(self.groups.descriptors, self.groups.leaf_ids)


def replace_unused_atoms(
    points: Points, table: Int32Array, dictionary: Float32Array, leaf_energies: Float64Array
) -> Float32Array:
    """Give every unused atom a direction that some group misses (section 2.2).

    The groups with the largest residuals each lose the atom they chose last; the
    principal component of what is then left over becomes the new atom.
    """
    populated = points.populated
    used = np.zeros(dictionary.shape[0], bool)
    used[table[populated]] = True
    unused = np.flatnonzero(~used)
    worst = populated[np.argsort(-leaf_energies[populated], kind="stable")[: len(unused)]]
    directions = points.missing_directions(worst, table[worst, :-1], dictionary)
    replaced = dictionary.copy()
    for atom, direction in zip(unused, directions, strict=False):
        if direction is not None:
            replaced[atom] = direction
    return replaced
