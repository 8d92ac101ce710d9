"""Bytes that look like markers of a JPEG."""

from service.engine.arrays import UInt8Array
from service.engine.compiling import kernel

__all__ = ["count_pairs"]


@kernel
def count_pairs(values: UInt8Array, first: int, second: int) -> int:
    """How often a byte follows another in values (n,)."""
    count = 0
    for i in range(values.shape[0] - 1):
        count += (values[i] == first) & (values[i + 1] == second)
    return count
