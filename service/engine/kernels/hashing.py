"""Buckets of a projection hash: one bit for each direction."""

import numpy as np

from service.engine.arrays import Float32Array, Int32Array
from service.engine.compiling import kernel

__all__ = ["hash_bits"]


@kernel
def hash_bits(
    descriptors: Float32Array,
    directions: Float32Array,
    offsets: Float32Array,
    periodic: bool,  # noqa: FBT001
    leaf_ids: Int32Array,
) -> None:
    """s(h(Hx + b)) with s(y) = [y > 0]: bit i of the bucket comes from direction i.

    tanh keeps the sign, so that only the sine (`periodic`) has to be computed.
    descriptors (n, d); directions (p, d); offsets (p,) -> leaf_ids (n,).
    """
    bits, width = directions.shape
    for n in range(descriptors.shape[0]):
        bucket = 0
        for bit in range(bits):
            value = offsets[bit]
            for k in range(width):
                value += descriptors[n, k] * directions[bit, k]
            if periodic:
                value = np.sin(value)
            if value > 0:
                bucket |= 1 << bit
        leaf_ids[n] = bucket
