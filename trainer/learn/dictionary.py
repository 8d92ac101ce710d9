"""The dictionary: first atoms, its two updates, and the replacement of unused atoms.

Step 3 of Algorithm 2 is one function whichever update was chosen: the least-squares
solve is here, K-SVD in `ksvd.py`. Unused atoms are replaced as section 2.2 says.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, frozen
from service.engine.codes import Codes
from service.engine.coding import Coder
from trainer.errors import DataError
from trainer.learn.kernels.dictionary import accumulate_normal_equations, measure_residuals
from trainer.learn.ksvd import update_by_ksvd
from trainer.learn.somp import LeafGroups
from trainer.parallel import map_ordered, one_blas_thread

__all__ = [
    "DictionaryUpdate",
    "first_dictionary",
    "replace_unused_atoms",
    "residual_energies",
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


def first_dictionary(
    descriptors: Float32Array, n_atoms: int, rng: np.random.Generator
) -> Float32Array:
    """Random descriptors, all different places, scaled to unit norm: (n_atoms, d)."""
    if descriptors.shape[0] < n_atoms:
        raise DataError(
            f"{descriptors.shape[0]} descriptors are fewer than the {n_atoms} atoms of the "
            "dictionary; use more images, more samples or fewer atoms"
        )
    places = rng.choice(descriptors.shape[0], n_atoms, replace=False)
    return unit_rows(descriptors[np.sort(places)])


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
    n_atoms, width = dictionary.shape
    moments = np.zeros((n_atoms, n_atoms), np.float64)
    products = np.zeros((n_atoms, width), np.float64)
    accumulate_normal_equations(
        frozen(descriptors), frozen(codes.atom_ids), frozen(codes.values), moments, products
    )
    used = np.flatnonzero(np.diag(moments) > 0)
    if not used.size:  # all-zero descriptors have all-zero codes
        return dictionary.copy()
    system = moments[np.ix_(used, used)]
    system[np.diag_indices_from(system)] += _RIDGE * np.diag(system).mean()
    updated = dictionary.copy()
    updated[used] = unit_rows(np.linalg.solve(system, products[used]).astype(np.float32))
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


def replace_unused_atoms(
    groups: LeafGroups, table: Int32Array, dictionary: Float32Array, energies: Float32Array
) -> Float32Array:
    """Give every unused atom a direction that some group misses (section 2.2).

    The groups with the largest residuals each lose the atom they chose last; the
    principal component of what is then left over becomes the new atom.
    """
    populated = groups.populated
    used = np.zeros(dictionary.shape[0], bool)
    used[table[populated]] = True
    unused = np.flatnonzero(~used)
    leaf_energies = np.bincount(groups.leaf_ids, energies, minlength=table.shape[0])
    worst = populated[np.argsort(-leaf_energies[populated], kind="stable")[: len(unused)]]
    # All coders at once: each call would compute the Gram matrix of the whole dictionary.
    coder = Coder.from_table(table[worst, :-1], dictionary)

    def missing(place: int) -> Float32Array | None:
        members = groups.descriptors[groups.members(worst[place])]
        return _missing_direction(members, coder, place)

    with one_blas_thread():  # matrices this small take longer on more threads
        directions = list(map_ordered(missing, range(len(worst)), "unused atoms"))
    replaced = dictionary.copy()
    for atom, direction in zip(unused, directions, strict=False):
        if direction is not None:
            replaced[atom] = direction
    return replaced


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
