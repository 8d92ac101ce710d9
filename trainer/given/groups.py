"""Structured dictionary learning when the groups are given (section 2.1).

The Lloyd-like loop: every descriptor goes to the group with the smallest error, its
coefficients and then the dictionary solve least squares, and the energy never rises.
Where coefficients cost something, atoms have at most unit norm, as in a line that the
paper's source comments out: otherwise they grow and the costs fade.
Disjoint groups are K-flats. All in float64, because that promise holds only as far as
the arithmetic does. Given a hash, the descriptors of a bucket choose together (section
2.3). `greedy.py` is for groups too many to try, `codes.py` makes a coder.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array, Int32Array, frozen
from service.engine.coding import Coder
from trainer.errors import DataError
from trainer.learn.group_choice import best_groups
from trainer.learn.kernels.dictionary import accumulate_normal_equations
from trainer.learn.somp import LeafGroups, each_alone, nearest_populated
from trainer.parallel import map_ordered

__all__ = [
    "GivenGroups",
    "GroupCodes",
    "GroupStructure",
    "StructuredDictionary",
    "disjoint_groups",
    "given_groups",
    "learn_dictionary",
    "learn_together",
]

logger = logging.getLogger(__name__)

# Directions of a group with a smaller share of its (scaled) system are not used.
_SMALLEST_EIGENVALUE = 1e-10
# The engine computes in float32, and drops more.
_SMALLEST_SERVED_EIGENVALUE = 1e-4
# Weight of a proximal term, relative to the mean moment: it determines atoms that the
# codes leave free, and cannot raise the energy, as a penalty on the atoms themselves can.
_PROXIMAL_WEIGHT = 1e-10
# A sweep over all atoms that moves none of their values by more is the last one.
_SETTLED = 1e-6
_MOST_SWEEPS = 50
_ROWS = 4096


@dataclass(frozen=True)
class GroupCodes:
    """atom_ids (n, m), values (n, m) with zeros to fill up, energies (n,) with all costs."""

    atom_ids: Int32Array
    values: Float64Array
    energies: Float64Array


@dataclass(frozen=True)
class _NormalEquations:
    """Of Σ‖Wz - x‖² for fixed codes: ZZᵀ (K, K) and ZXᵀ (K, d)."""

    moments: Float64Array
    products: Float64Array

    @classmethod
    def of(
        cls, descriptors: Float32Array, codes: GroupCodes, atoms: Float64Array
    ) -> "_NormalEquations":
        """The equations for the codes of descriptors (n, d) over atoms (K, d)."""
        equations = cls(np.zeros((len(atoms), len(atoms))), np.zeros(atoms.shape))
        accumulate_normal_equations(
            frozen(descriptors),
            frozen(codes.atom_ids),
            frozen(codes.values),
            equations.moments,
            equations.products,
        )
        return equations

    @property
    def used(self) -> npt.NDArray[np.intp]:
        """Atoms that some code uses."""
        return np.flatnonzero(np.diag(self.moments) > 0)


class GroupStructure(Protocol):
    """Which active sets are allowed, known as a list or only by a subroutine."""

    @property
    def has_costs(self) -> bool:
        """Whether the lengths of atoms matter, and are at most one; else they are one."""

    def encode_together(self, buckets: LeafGroups, dictionary: Float64Array) -> GroupCodes:
        """Codes of all descriptors, those of a leaf within the same allowed active set."""

    def of_leaves(self, buckets: LeafGroups, dictionary: Float64Array) -> "GivenGroups":
        """The active set that each leaf chose, as one group per leaf."""


@dataclass(frozen=True)
class StructuredDictionary:
    """Dictionary (K, d), its codes, and Σ‖x - Wz‖² plus costs before and after iterations."""

    dictionary: Float64Array
    codes: GroupCodes
    energies: tuple[float, ...]


@dataclass(frozen=True)
class GivenGroups:
    """Groups side by side: table (L, m), present (L, m) and costs (L, m).

    Smaller groups are filled up with the lowest other atoms, marked as not present.
    """

    table: Int32Array
    present: Float64Array
    costs: Float64Array

    @property
    def has_costs(self) -> bool:
        """Whether any index of any group costs something."""
        return bool(self.costs.any())

    def choose(self, descriptors: Float32Array, dictionary: Float64Array) -> Int32Array:
        """The paper's g: the group (n,) with the smallest error, or error plus cost."""
        return self.choose_together(each_alone(descriptors), dictionary)

    def choose_together(self, buckets: LeafGroups, dictionary: Float64Array) -> Int32Array:
        """The group of each leaf (leaves,), the best for all its descriptors together.

        A leaf without descriptors follows the populated leaf before it.
        """
        best = best_groups(buckets, self.table, self.inverses(dictionary), dictionary)
        return best[nearest_populated(buckets)]

    def encode(self, descriptors: Float32Array, dictionary: Float64Array) -> GroupCodes:
        """Codes of descriptors (n, d), each within its best group."""
        return self.encode_together(each_alone(descriptors), dictionary)

    def encode_together(self, buckets: LeafGroups, dictionary: Float64Array) -> GroupCodes:
        """Within the best group z = (WᵀW + C)⁻¹Wᵀx, thus ‖x - Wz‖² + zᵀCz = ‖x‖² - xᵀWz."""
        descriptors, inverses = buckets.descriptors, self.inverses(dictionary)
        group_ids = self.choose_together(buckets, dictionary)[buckets.leaf_ids]

        def encode_rows(begin: int) -> tuple[Float64Array, Float64Array]:
            x = descriptors[begin : begin + _ROWS].astype(np.float64)
            groups = group_ids[begin : begin + _ROWS]
            products = np.einsum("nmd,nd->nm", dictionary[self.table[groups]], x)
            values = np.einsum("nab,nb->na", inverses[groups], products)
            return values, (x * x).sum(axis=1) - (products * values).sum(axis=1)

        parts = list(map_ordered(encode_rows, range(0, len(descriptors), _ROWS), "codes"))
        values, energies = (np.concatenate(column) for column in zip(*parts, strict=True))
        return GroupCodes(self.table[group_ids], values, energies)

    def of_leaves(self, buckets: LeafGroups, dictionary: Float64Array) -> "GivenGroups":
        """The group that each leaf chose."""
        chosen = self.choose_together(buckets, dictionary)
        return GivenGroups(self.table[chosen], self.present[chosen], self.costs[chosen])

    def inverses(
        self, dictionary: Float64Array, smallest: float = _SMALLEST_EIGENVALUE
    ) -> Float64Array:
        """(W_GᵀW_G + diag(cost))⁻¹ of every group (L, m, m), zero where nothing is present.

        Scaled to a unit diagonal before small eigenvalues are dropped, because with
        costs the lengths of atoms may differ by orders of magnitude.
        """
        if self.table.max() >= len(dictionary):
            raise DataError(
                f"the groups use atom {self.table.max()}, expected ids below {len(dictionary)}"
            )
        gram = dictionary @ dictionary.T
        systems = gram[self.table[:, :, None], self.table[:, None, :]]
        systems *= self.present[:, :, None] * self.present[:, None, :]
        places = np.arange(self.table.shape[1])
        systems[:, places, places] += self.costs
        diagonals = systems[:, places, places]
        scales = np.divide(1, np.sqrt(diagonals), out=np.zeros_like(diagonals), where=diagonals > 0)
        scaling = scales[:, :, None] * scales[:, None, :]
        scaled = np.linalg.pinv(systems * scaling, rcond=smallest, hermitian=True)
        inverses: Float64Array = scaled * scaling
        return inverses

    def coder(self, dictionary: Float64Array, *, wide: bool = True) -> Coder:
        """The engine's coder, which takes the group of a descriptor as its leaf."""

        def invert(_: Int32Array, rounded: Float64Array) -> Float32Array:
            return self.inverses(rounded, _SMALLEST_SERVED_EIGENVALUE).astype(np.float32)

        return Coder.from_table(self.table, dictionary, wide=wide, invert=invert)


def given_groups(
    groups: Sequence[Sequence[int]],
    costs: Sequence[Sequence[float]] | None = None,
    width: int = 1,
) -> GivenGroups:
    """Groups of atom ids, overlapping or not, of any sizes; costs c add c·z² per index.

    The table is as wide as the largest group, and at least `width`.
    """
    costs = [[0.0] * len(group) for group in groups] if costs is None else costs
    if not groups or len(costs) != len(groups):
        raise DataError(
            f"{len(groups)} groups with {len(costs)} lists of costs, expected one list each "
            "for at least one group"
        )
    for row, (group, cost) in enumerate(zip(groups, costs, strict=True)):
        _check_group(row, group, cost)
    shape = (len(groups), max(width, *(len(group) for group in groups)))
    result = GivenGroups(np.zeros(shape, np.int32), np.zeros(shape), np.zeros(shape))
    for row, (group, cost) in enumerate(zip(groups, costs, strict=True)):
        others = (atom for atom in range(shape[1]) if atom not in group)
        result.table[row] = [*group, *islice(others, shape[1] - len(group))]
        result.present[row, : len(group)] = 1
        result.costs[row, : len(group)] = cost
    return result


def _check_group(row: int, group: Sequence[int], cost: Sequence[float]) -> None:
    if not group or len(set(group)) != len(group) or min(group) < 0:
        raise DataError(f"group {row} is {list(group)}, expected different atom ids, at least one")
    if len(cost) != len(group) or not all(0 <= c < np.inf for c in cost):
        raise DataError(
            f"costs of group {row} are {list(cost)}, "
            f"expected {len(group)} finite numbers of at least 0"
        )


def disjoint_groups(n_groups: int, size: int) -> GivenGroups:
    """Blocks of consecutive atoms: K-flats."""
    return given_groups(np.arange(n_groups * size).reshape(n_groups, size).tolist())


def learn_dictionary(
    descriptors: Float32Array,
    structure: GroupStructure,
    dictionary: Float32Array,
    iterations: int,
) -> StructuredDictionary:
    """Codes of descriptors (n, d) and dictionary (K, d) in turn, from a first dictionary."""
    return learn_together(each_alone(descriptors), structure, dictionary, iterations)


def learn_together(
    buckets: LeafGroups,
    structure: GroupStructure,
    dictionary: Float32Array,
    iterations: int,
) -> StructuredDictionary:
    """The same where the descriptors of a bucket choose one group together.

    With listed groups the energy never rises. Atoms that no code uses stay as they are.
    """
    atoms, descriptors = dictionary.astype(np.float64), buckets.descriptors
    if structure.has_costs:  # the bound holds from the start, or else the energy could rise
        atoms /= np.maximum(1, np.linalg.norm(atoms, axis=1, keepdims=True))
    codes = structure.encode_together(buckets, atoms)
    energies = [float(codes.energies.sum())]
    total = float(np.einsum("ij,ij->", descriptors, descriptors, dtype=np.float64)) or 1.0
    for iteration in range(iterations):
        equations = _NormalEquations.of(descriptors, codes, atoms)
        if structure.has_costs:  # longer atoms would be cheaper, without an end
            atoms = _bounded_atoms(equations, atoms)
        else:  # whatever their lengths, the spans and so the energy stay
            atoms = _unit_atoms(_least_squares_atoms(equations, atoms))
        codes = structure.encode_together(buckets, atoms)
        energies.append(float(codes.energies.sum()))
        logger.info(
            "iteration %d/%d: relative error %.4f%s",
            iteration + 1,
            iterations,
            energies[-1] / total,
            " with costs" if structure.has_costs else "",
        )
    return StructuredDictionary(atoms, codes, tuple(energies))


def _least_squares_atoms(equations: _NormalEquations, atoms: Float64Array) -> Float64Array:
    """The atoms (K, d) that minimise Σ‖Wz - x‖² for fixed codes, near the old ones if free."""
    used = equations.used
    if not used.size:
        return atoms
    system = equations.moments[np.ix_(used, used)]
    weight = _PROXIMAL_WEIGHT * np.diag(system).mean()
    system[np.diag_indices_from(system)] += weight
    updated = atoms.copy()
    updated[used] = np.linalg.solve(system, equations.products[used] + weight * atoms[used])
    return updated


def _bounded_atoms(equations: _NormalEquations, atoms: Float64Array) -> Float64Array:
    """The atoms (K, d) of at most unit norm that minimise Σ‖Wz - x‖² for fixed codes.

    Atom after atom: for one of them the energy is a parabola that is alike in all directions,
    so that its best place in the ball is its best place anywhere, scaled down.
    """
    moments, products = equations.moments, equations.products
    updated = atoms.copy()
    for _ in range(_MOST_SWEEPS):
        before = updated.copy()
        for atom in equations.used:
            gradient = moments[atom] @ updated - products[atom]
            free = updated[atom] - gradient / moments[atom, atom]
            updated[atom] = free / max(1.0, float(np.linalg.norm(free)))
        if np.abs(updated - before).max() <= _SETTLED:
            break
    return updated


def _unit_atoms(atoms: Float64Array) -> Float64Array:
    norms = np.linalg.norm(atoms, axis=1, keepdims=True)
    units: Float64Array = np.divide(atoms, norms, out=atoms.copy(), where=norms > 0)
    return units
