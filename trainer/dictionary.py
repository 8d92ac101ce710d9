"""The dictionary: first atoms, least-squares update, and atoms that nobody uses."""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, frozen
from service.engine.coding import Coder, Codes
from trainer.errors import DataError
from trainer.kernels.dictionary import accumulate_normal_equations, measure_residuals
from trainer.somp import LeafGroups

__all__ = [
    "first_dictionary",
    "replace_unused_atoms",
    "residual_energies",
    "update_by_least_squares",
]

# Added to the diagonal, relative to its mean, so that atoms used together always do
# not make the system singular.
_RIDGE = 1e-6


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
    return _unit_rows(descriptors[np.sort(places)])


def update_by_least_squares(
    descriptors: Float32Array, codes: Codes, dictionary: Float32Array
) -> Float32Array:
    """The atoms (K, d) that minimise Σ‖Wz - x‖² for fixed codes, then scaled to unit norm.

    Atoms that no code uses stay as they are.
    """
    n_atoms, width = dictionary.shape
    moments = np.zeros((n_atoms, n_atoms), np.float64)
    products = np.zeros((n_atoms, width), np.float64)
    accumulate_normal_equations(
        frozen(descriptors), frozen(codes.atom_ids), frozen(codes.values), moments, products
    )
    used = np.flatnonzero(np.diag(moments) > 0)
    system = moments[np.ix_(used, used)]
    system[np.diag_indices_from(system)] += _RIDGE * np.diag(system).mean()
    updated = dictionary.copy()
    updated[used] = _unit_rows(np.linalg.solve(system, products[used]).astype(np.float32))
    return updated


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
    worst = np.argsort(-leaf_energies[populated], kind="stable")
    replaced = dictionary.copy()
    for atom, leaf in zip(unused, populated[worst], strict=False):
        direction = _missing_direction(
            groups.descriptors[groups.members(leaf)], table[leaf], dictionary
        )
        if direction is not None:
            replaced[atom] = direction
    return replaced


def _missing_direction(
    members: Float32Array, active_set: Int32Array, dictionary: Float32Array
) -> Float32Array | None:
    """Principal component of the residual without the last atom; None if nothing is left."""
    kept = active_set[None, :-1]
    residual = members.astype(np.float64)
    if kept.size:
        coder = Coder.from_table(kept, dictionary)
        codes = coder.encode(members, np.zeros(members.shape[0], np.int32))
        residual -= codes.values @ dictionary[kept[0]]
    _, directions = np.linalg.eigh(residual.T @ residual)
    direction = directions[:, -1].astype(np.float32)
    return direction if np.linalg.norm(residual) > 1e-6 else None


def _unit_rows(rows: Float32Array) -> Float32Array:
    norms: Float32Array = np.linalg.norm(rows, axis=1, keepdims=True)
    norms[norms == 0] = 1
    return rows / norms
