"""How far roundings may move a descriptor, and the cells that it consists of."""

import numpy as np
import numpy.typing as npt

from tests.reference import EPSILON

# v = m·cos⁹(φ - φₙ) changes by at most LIPSCHITZ times the length of a change in the
# gradient: sqrt(cos¹⁸ + 81·cos¹⁶·sin²) is below 1.97 everywhere.
LIPSCHITZ = 2.0

# A feature adds 16 pixels. Each derivative of grey levels in [0, 1] comes from two sums
# of five products whose absolute values add up to two: eight roundings of 2 at the most.
GRADIENT_ROUNDING = 8 * EPSILON
FEATURE_ROUNDING = 16 * LIPSCHITZ * np.sqrt(2) * GRADIENT_ROUNDING

HALF = np.float32(0.5)


def cells_of(descriptors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Descriptors as (rows, cols, cell row, cell column, orientation)."""
    return descriptors.reshape(*descriptors.shape[:2], 4, 4, 8)
