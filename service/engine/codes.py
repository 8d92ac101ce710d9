"""Sparse codes as arrays; `coding.py` computes them.

Apart from it, because processes that only pass codes on or write them need no kernel.
"""

from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Float32Array, Int32Array, IntpArray

__all__ = ["Codes"]


@dataclass(frozen=True)
class Codes:
    """Sparse codes by column: leaf_ids (n,), atom_ids (n, m), values (n, m)."""

    leaf_ids: Int32Array
    atom_ids: Int32Array
    values: Float32Array

    @classmethod
    def empty(cls, leaf_ids: Int32Array, nonzeros: int) -> "Codes":
        """Codes whose leaf ids are given and whose other columns are not filled yet."""
        shape = (len(leaf_ids), nonzeros)
        return cls(leaf_ids, np.empty(shape, np.int32), np.empty(shape, np.float32))

    def part(self, rows: slice) -> "Codes":
        """A view of some rows: filling it fills these codes."""
        return Codes(self.leaf_ids[rows], self.atom_ids[rows], self.values[rows])

    def at(self, places: IntpArray) -> "Codes":
        """A copy of the codes at some places."""
        return Codes(self.leaf_ids[places], self.atom_ids[places], self.values[places])
