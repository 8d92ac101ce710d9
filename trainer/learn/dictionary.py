"""The dictionary: first atoms, its two updates, and directions for atoms that are unused.

Step 3 of Algorithm 2 is one function whichever update was chosen: the least-squares
solve is here, K-SVD in `ksvd.py`. The former needs only sums over the descriptors, which may be
made in several places.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array, Int32Array, frozen
from service.engine.codes import Codes
from service.engine.coding import Coder
from trainer.errors import DataError
from trainer.learn.kernels.dictionary import accumulate_normal_equations, measure_residuals
from trainer.learn.ksvd import update_by_ksvd
from trainer.learn.somp import LeafGroups
from trainer.parallel import map_ordered, one_blas_thread

__all__ = [
    "DictionaryUpdate",
    "NormalEquations",
    "first_dictionary",
    "first_places",
    "missing_directions",
    "normal_equations",
    "residual_energies",
    "solve_normal_equations",
    "unit_rows",
    "update_by_least_squares",
    "update_dictionary",
]

DictionaryUpdate = Literal["least-squares", "ksvd"]

# Added to the diagonal, relative to its mean, so that atoms used together always do
# not make the system singular.
_RIDGE = 1e-6
# Summed squares of a group's residuals that are no direction any more.
_NOTHING_LEFT = 1e-12
# Descriptors of a large group that are in memory in float64 at a time.
_ROWS = 2**12


@dataclass(frozen=True)
class NormalEquations:
    """Σ zzᵀ (K, K) and Σ zxᵀ (K, d) over some codes z of descriptors x; sums of these add up."""

    moments: Float64Array
    products: Float64Array

    def __add__(self, other: "NormalEquations") -> "NormalEquations":
        return NormalEquations(self.moments + other.moments, self.products + other.products)


def first_dictionary(
    descriptors: Float32Array, n_atoms: int, rng: np.random.Generator
) -> Float32Array:
    """Random descriptors, all different places, scaled to unit norm: (n_atoms, d)."""
    return unit_rows(descriptors[first_places(descriptors.shape[0], n_atoms, rng)])


def first_places(
    n_descriptors: int, n_atoms: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """The places (n_atoms,), in order, of the descriptors that become the first atoms."""
    if n_descriptors < n_atoms:
        raise DataError(
            f"{n_descriptors} descriptors are fewer than the {n_atoms} atoms of the "
            "dictionary; use more images, more samples or fewer atoms"
        )
    return np.sort(rng.choice(n_descriptors, n_atoms, replace=False))


def update_dictionary(
    kind: DictionaryUpdate, descriptors: Float32Array, codes: Codes, dictionary: Float32Array
) -> Float32Array:
    """Step 3 of Algorithm 2: better atoms (K, d) of unit norm for the same active sets.

    Atoms that no code uses stay as they are.
    """
    return _UPDATES[kind](descriptors, codes, dictionary)


def update_by_least_squares(
    descriptors: Float32Array, codes: Codes, dictionary: Float32Array
) -> Float32Array:
    """The atoms (K, d) that minimise Σ‖Wz - x‖² for fixed codes, then scaled to unit norm."""
    return solve_normal_equations(normal_equations(descriptors, codes, dictionary), dictionary)


def normal_equations(
    descriptors: Float32Array, codes: Codes, dictionary: Float32Array
) -> NormalEquations:
    """The sums over descriptors (n, d) and their codes."""
    n_atoms, width = dictionary.shape
    moments = np.zeros((n_atoms, n_atoms), np.float64)
    products = np.zeros((n_atoms, width), np.float64)
    accumulate_normal_equations(
        frozen(descriptors), frozen(codes.atom_ids), frozen(codes.values), moments, products
    )
    return NormalEquations(moments, products)


def solve_normal_equations(sums: NormalEquations, dictionary: Float32Array) -> Float32Array:
    """The best atoms (K, d) of unit norm; those that no code uses stay as they are."""
    used = np.flatnonzero(np.diag(sums.moments) > 0)
    if not used.size:  # all-zero descriptors have all-zero codes
        return dictionary.copy()
    system = sums.moments[np.ix_(used, used)]
    system[np.diag_indices_from(system)] += _RIDGE * np.diag(system).mean()
    updated = dictionary.copy()
    updated[used] = unit_rows(np.linalg.solve(system, sums.products[used]).astype(np.float32))
    return updated


_UPDATES: dict[DictionaryUpdate, Callable[[Float32Array, Codes, Float32Array], Float32Array]] = {
    "least-squares": update_by_least_squares,
    "ksvd": update_by_ksvd,
}


def residual_energies(
    descriptors: Float32Array, codes: Codes, dictionary: Float32Array
) -> Float32Array:
    """‖x - Wz‖² of every descriptor (n,)."""
    energies = np.empty(descriptors.shape[0], np.float32)
    measure_residuals(
        frozen(descriptors),
        frozen(codes.atom_ids),
        frozen(codes.values),
        frozen(dictionary),
        energies,
    )
    return energies


def missing_directions(
    groups: LeafGroups, leaves: Int32Array, table: Int32Array, dictionary: Float32Array
) -> list[Float32Array | None]:
    """The direction (d,) that each of some leaves misses most with the atoms of its row of table.

    It is the principal component of what is left over; None where nothing is.
    """
    # All coders at once: each call would compute the Gram matrix of the whole dictionary.
    coder = Coder.from_table(table, dictionary, wide=groups.wide)

    def missing(place: int) -> Float32Array | None:
        members = groups.descriptors[groups.members(leaves[place])]
        return _missing_direction(members, coder, place)

    with one_blas_thread():  # matrices this small take longer on more threads
        return list(map_ordered(missing, range(len(leaves)), "unused atoms"))


def _missing_direction(members: Float32Array, coder: Coder, place: int) -> Float32Array | None:
    """Principal component of what the active set at `place` leaves; None if that is nothing."""
    moments = np.zeros((members.shape[1], members.shape[1]))
    for begin in range(0, len(members), _ROWS):
        points = members[begin : begin + _ROWS]
        codes = coder.encode(points, np.full(len(points), place, np.int32))
        residuals = points.astype(np.float64)
        residuals -= codes.values @ coder.dictionary[coder.table[place]]
        moments += residuals.T @ residuals
    if np.trace(moments) <= _NOTHING_LEFT:
        return None
    _, directions = np.linalg.eigh(moments)
    return directions[:, -1].astype(np.float32)


def unit_rows(rows: Float32Array) -> Float32Array:
    """Rows scaled to unit norm; zero rows stay zero."""
    norms: Float32Array = np.linalg.norm(rows, axis=1, keepdims=True)
    norms[norms == 0] = 1
    return rows / norms
