"""Better active sets by exchange: each atom in turn gives way to the one that saves most.

SOMP adds atoms by the sum of their correlations and never takes one back. Here the
objective is the squared residual itself, on the same correlations and Gram matrix.
"""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array
from service.engine.compiling import allocating_kernel, part
from trainer.learn.kernels.somp import SMALLEST_NEW_PART

__all__ = ["swap_atoms"]

# Near-copies of a swap's worth are no reason to swap: rounding would decide.
_WORTH_A_SWAP = np.float32(1.0001)


@part
def _orthonormal_parts(
    gram: Float32Array, others: Int32Array, parts: Float32Array, remaining: Float32Array
) -> None:
    """qᵀW of each of the other atoms' orthonormal parts q, and what they leave of every atom."""
    n_atoms = gram.shape[0]
    for i in range(n_atoms):
        remaining[i] = gram[i, i]
    for step in range(others.shape[0]):
        atom = others[step]
        length = np.sqrt(max(remaining[atom], SMALLEST_NEW_PART))
        for i in range(n_atoms):
            parts[step, i] = gram[atom, i]
        for earlier in range(step):
            weight = parts[earlier, atom]
            for i in range(n_atoms):
                parts[step, i] -= weight * parts[earlier, i]
        for i in range(n_atoms):
            parts[step, i] /= length
            remaining[i] -= parts[step, i] * parts[step, i]
        remaining[atom] = 0


@part
def _add_energies(
    correlations: Float32Array,
    others: Int32Array,
    parts: Float32Array,
    energies: Float32Array,
) -> None:
    """Σ(rᵀw)² of every atom w, r what the other atoms leave of a descriptor."""
    n_atoms = energies.shape[0]
    energies[:] = 0
    left = np.empty(n_atoms, np.float32)
    for s in range(correlations.shape[0]):
        for i in range(n_atoms):
            left[i] = correlations[s, i]
        for step in range(others.shape[0]):
            atom = others[step]
            if parts[step, atom] > 0:
                coefficient = left[atom] / parts[step, atom]
                for i in range(n_atoms):
                    left[i] -= coefficient * parts[step, i]
        for i in range(n_atoms):
            energies[i] += left[i] * left[i]


@allocating_kernel
def swap_atoms(correlations: Float32Array, gram: Float32Array, chosen: Int32Array) -> None:
    """One round of exchanges within an active set; the squared residual never rises.

    correlations (n, K) of the descriptors with the atoms; gram (K, K) of atoms
    of unit norm; chosen (m,), overwritten.
    """
    n_atoms, nonzeros = gram.shape[0], chosen.shape[0]
    parts = np.empty((nonzeros, n_atoms), np.float32)
    remaining = np.empty(n_atoms, np.float32)
    energies = np.empty(n_atoms, np.float32)
    for _ in range(nonzeros):
        others, leaving = chosen[1:].copy(), chosen[0]
        _orthonormal_parts(gram, others, parts, remaining)
        _add_energies(correlations, others, parts, energies)
        best, most = leaving, np.float32(0)
        if remaining[leaving] > SMALLEST_NEW_PART:
            most = _WORTH_A_SWAP * energies[leaving] / remaining[leaving]
        for atom in range(n_atoms):
            if remaining[atom] > SMALLEST_NEW_PART:
                saved = energies[atom] / remaining[atom]
                if saved > most:
                    best, most = atom, saved
        chosen[:-1] = others
        chosen[-1] = best
