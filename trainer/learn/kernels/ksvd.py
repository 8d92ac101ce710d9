"""One sweep of K-SVD over all atoms, each a rank-one fit to what its users lack.

The exact fit is the first singular vector of E, the residuals of the points that use
the atom with its own share added back. A few power iterations from the current
coefficients get near it; each lowers the error, so the sweep never raises it.
"""

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from service.engine.compiling import allocating_kernel, part

__all__ = ["sweep_atoms"]


@part
def _normalise(total: Float64Array, direction: Float32Array) -> None:
    """Direction of `total`; unchanged where that has no length."""
    squared = 0.0
    for k in range(total.shape[0]):
        squared += total[k] * total[k]
    if squared > 0:
        length = np.sqrt(squared)
        for k in range(total.shape[0]):
            direction[k] = total[k] / length


@part
def _dot(first: Float32Array, second: Float32Array) -> np.float32:
    total = np.float32(0)
    for k in range(first.shape[0]):
        total += first[k] * second[k]
    return total


@allocating_kernel
def sweep_atoms(
    users: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    rounds: int,
    residuals: Float32Array,
    values: Float32Array,
    dictionary: Float32Array,
) -> None:
    """Update every atom and its coefficients in place, one atom after the other.

    users (n·m,) are positions in the flat values, those of atom k at
    [starts[k], starts[k + 1]); residuals (n, d) are x - Wz and stay so; values (n, m);
    dictionary (K, d), whose atoms end at unit norm unless no code uses them. `rounds`
    is the number of power iterations, the first with the current coefficients.
    """
    nonzeros, width = values.shape[1], dictionary.shape[1]
    direction = np.empty(width, np.float32)
    total = np.empty(width, np.float64)  # popular atoms add up as many terms as there are points
    for atom in range(dictionary.shape[0]):
        begin, end = starts[atom], starts[atom + 1]
        if begin == end:
            continue
        old = dictionary[atom]
        length = np.sqrt(_dot(old, old))
        for k in range(width):
            direction[k] = old[k] / length if length > 0 else old[k]
        total[:] = 0
        for user in users[begin:end]:  # residuals become E, total becomes Eᵀz
            row, value = residuals[user // nonzeros], values[user // nonzeros, user % nonzeros]
            for k in range(width):
                row[k] += value * old[k]
                total[k] += value * row[k]
        _normalise(total, direction)
        for _ in range(rounds - 1):  # total becomes EᵀEw
            total[:] = 0
            for user in users[begin:end]:
                row = residuals[user // nonzeros]
                share = _dot(row, direction)
                for k in range(width):
                    total[k] += share * row[k]
            _normalise(total, direction)
        for user in users[begin:end]:  # z = Ew, and residuals are residuals again
            row = residuals[user // nonzeros]
            share = _dot(row, direction)
            values[user // nonzeros, user % nonzeros] = share
            for k in range(width):
                row[k] -= share * direction[k]
        dictionary[atom] = direction
