"""Simultaneous orthogonal matching pursuit on correlations alone (Algorithm 1).

With q the part of the chosen atom that is orthogonal to those before it, the
residuals' correlations with all atoms change by a rank-one update, and both of its
factors come from the correlations and the Gram matrix: descriptors are not touched
after the first product.
"""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array
from service.engine.compiling import allocating_kernel, part

__all__ = ["NEGLIGIBLE", "SMALLEST_NEW_PART", "choose_atoms"]

# An atom of unit norm whose part outside the span of the chosen ones has a smaller
# squared norm than this adds nothing but an ill-conditioned inverse.
SMALLEST_NEW_PART = np.float32(1e-3)
# Residuals whose sums have all fallen to this share of the largest first sum are gone.
NEGLIGIBLE = np.float32(1e-5)


@part
def _best_atom(sums: Float32Array, remaining: Float32Array) -> int:
    """The candidate with the largest sum; the lowest index on ties, -1 if none is left."""
    best = -1
    for atom in range(sums.shape[0]):
        if remaining[atom] > SMALLEST_NEW_PART and (best < 0 or sums[atom] > sums[best]):
            best = atom
    return best


@part
def _add_magnitudes(correlations: Float32Array, sums: Float32Array) -> None:
    sums[:] = 0
    for s in range(correlations.shape[0]):
        for atom in range(sums.shape[0]):
            sums[atom] += abs(correlations[s, atom])


@allocating_kernel
def choose_atoms(correlations: Float32Array, gram: Float32Array, chosen: Int32Array) -> None:
    """The atoms that descriptors of one leaf choose together.

    correlations (n, K) of the descriptors with the atoms, overwritten; gram (K, K)
    of atoms of unit norm -> chosen (m,), all different. Where the residual vanishes
    before m atoms are chosen, the atoms next in line at the start fill up.
    """
    n_atoms, nonzeros = gram.shape[0], chosen.shape[0]
    parts = np.empty((nonzeros, n_atoms), np.float32)  # qᵀW of each step
    remaining = np.empty(n_atoms, np.float32)  # squared norm of each atom outside the span
    for atom in range(n_atoms):
        remaining[atom] = gram[atom, atom]
    sums = np.empty(n_atoms, np.float32)
    _add_magnitudes(correlations, sums)
    initial = sums.copy()
    negligible = NEGLIGIBLE * initial.max()
    for step in range(nonzeros):
        if sums.max() <= negligible:
            sums[:] = initial
        atom = _best_atom(sums, remaining)
        if atom < 0:
            atom = _first_unchosen(chosen[:step])
            chosen[step] = atom
            parts[step] = 0
            continue
        chosen[step] = atom
        length = np.sqrt(remaining[atom])
        part = parts[step]
        for i in range(n_atoms):
            part[i] = gram[atom, i]
        for earlier in range(step):
            weight = parts[earlier, atom]
            for i in range(n_atoms):
                part[i] -= weight * parts[earlier, i]
        for i in range(n_atoms):
            part[i] /= length
            remaining[i] -= part[i] * part[i]
        remaining[atom] = 0
        sums[:] = 0
        for s in range(correlations.shape[0]):
            coefficient = correlations[s, atom] / length
            for i in range(n_atoms):
                correlations[s, i] -= coefficient * part[i]
                sums[i] += abs(correlations[s, i])


@part
def _first_unchosen(chosen: Int32Array) -> int:
    atom = 0
    while atom in chosen:
        atom += 1
    return atom
