"""What is given to an engine from outside, checked before kernels, which check nothing, see it."""

import numpy as np

from service.engine.arrays import Float32Array
from service.engine.codes import Codes
from service.engine.config import DESCRIPTOR_WIDTH, CodesConfig
from service.engine.errors import DescriptorError

__all__ = ["check_codes", "valid_descriptors"]


def check_codes(codes: Codes, grid: tuple[int, int], config: CodesConfig) -> None:
    """Reject what would make pooling, which checks nothing, write beyond its arrays."""
    count = codes.leaf_ids.shape[0]
    if min(grid) < 0 or grid[0] * grid[1] != count:
        raise DescriptorError(f"{count} codes do not fill a grid of {grid[0]}x{grid[1]}")
    expected = (count, config.nonzeros)
    for name, column in (("atom ids", codes.atom_ids), ("values", codes.values)):
        if column.shape != expected:
            raise DescriptorError(
                f"{name} have the shape {list(column.shape)}, expected {list(expected)}"
            )
    if count and not 0 <= codes.atom_ids.min() <= codes.atom_ids.max() < config.n_atoms:
        raise DescriptorError(
            f"codes name atoms {codes.atom_ids.min()} to {codes.atom_ids.max()}, "
            f"expected 0 to {config.n_atoms - 1}"
        )


def valid_descriptors(descriptors: object) -> Float32Array:
    """Descriptors (n, 128) in float32, from whatever array or lists they are given in."""
    try:
        with np.errstate(over="ignore"):  # becomes infinite, which is rejected by its norm
            array = np.asarray(descriptors, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise DescriptorError(f"descriptors are not an array of numbers: {error}") from error
    if array.ndim != 2 or array.shape[1] != DESCRIPTOR_WIDTH:
        raise DescriptorError(
            f"descriptors have the shape {list(array.shape)}, expected [n, {DESCRIPTOR_WIDTH}]"
        )
    return array
