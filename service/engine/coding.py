"""Sparse codes: the look-up table names a leaf's atoms, a cached inverse their values.

The inverse is that of the Gram matrix of each active set; the dictionary is shared. At
depth 16 with 5 nonzeros that is 7 MB where a pseudo-inverse per leaf would take 168 MB.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.engine.arrays import (
    CACHE_LINE,
    Float32Array,
    Int16Array,
    Int32Array,
    Scalar,
    Tensors,
    aligned_empty,
    frozen,
)
from service.engine.codes import Codes
from service.engine.errors import DescriptorError
from service.engine.fixedpoint import UNIT, Descriptors, quantise_rows
from service.engine.kernels.coding import solve_codes
from service.engine.kernels.integers import LANES

__all__ = ["NO_LINES", "Coder", "invert_grams"]

# Directions whose share of the Gram matrix is below this are dropped, so that
# linearly dependent atoms share their value instead of blowing it up.
_SMALLEST_EIGENVALUE = 1e-4


@dataclass(frozen=True)
class Coder:
    """Look-up table (leaves, m), dictionary (K, d) and inverse Grams (leaves, m, m)."""

    table: Int32Array
    dictionary: Float32Array
    inverse_grams: Float32Array

    def __post_init__(self) -> None:
        for name in ("table", "dictionary", "inverse_grams"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    @classmethod
    def from_table(cls, table: Int32Array, dictionary: Float32Array) -> "Coder":
        """A coder whose inverses are computed from its atoms."""
        return cls(table, dictionary, invert_grams(table, dictionary))

    @classmethod
    def from_tensors(cls, tensors: Tensors) -> "Coder":
        """The coder that a bundle's tensors hold; nothing is copied."""
        return cls(tensors["table"], tensors["dictionary"], tensors["inverse_grams"])

    def encode(self, descriptors: Float32Array | Descriptors, leaf_ids: Int32Array) -> Codes:
        """Codes of n descriptors that were routed to leaf_ids (n,), each below `leaves`."""
        descriptors = Descriptors.of(descriptors)
        self._check(descriptors, leaf_ids)
        codes = Codes.empty(leaf_ids, self.table.shape[1])
        for rows, part in descriptors.parts():
            self.encode_into(codes.part(rows), part)
        return codes

    def _check(self, descriptors: Descriptors, leaf_ids: Int32Array) -> None:
        """Reject what would make the kernel, which checks nothing, read beyond its arrays."""
        n_leaves, width = len(self.table), self.lines.atoms.shape[1]
        if descriptors.width != width:
            raise DescriptorError(
                f"descriptors are {descriptors.width} wide, padded, expected {width} as the atoms"
            )
        if leaf_ids.shape != (len(descriptors),):
            raise DescriptorError(
                f"leaf ids have the shape {list(leaf_ids.shape)}, expected [{len(descriptors)}]"
            )
        if leaf_ids.size and not 0 <= leaf_ids.min() <= leaf_ids.max() < n_leaves:
            raise DescriptorError(
                f"leaf ids are {leaf_ids.min()} to {leaf_ids.max()}, expected 0 to {n_leaves - 1}"
            )

    def encode_into(self, codes: Codes, part: Descriptors) -> Float32Array:
        """Fill the atom ids and values of `codes`, whose leaf ids are set and in range.

        Returns the lengths (n,) of the descriptors, which are not finite if a value is not.
        """
        lines = self.lines
        solve_codes(
            *part.fixed,
            frozen(codes.leaf_ids),
            lines.table,
            lines.inverses,
            lines.atoms,
            lines.atom_scales,
            codes.atom_ids,
            codes.values,
        )
        return part.fixed.lengths

    @cached_property
    def lines(self) -> "Lines":
        """The coder's tensors in the layout that kernels read, made at the first use."""
        nonzeros = self.table.shape[1]
        upper = np.triu_indices(nonzeros)
        atoms, lengths = quantise_rows(self.dictionary)
        return Lines(
            _in_lines(self.table),
            _in_lines(self.inverse_grams[:, upper[0], upper[1]]),
            frozen(atoms),
            frozen((lengths / float(UNIT**2)).astype(np.float32)),
        )


class Lines(NamedTuple):
    """A coder laid out for `solve_codes`: few cache lines per leaf, integer atoms."""

    table: Int32Array
    inverses: Float32Array
    atoms: Int16Array
    atom_scales: Float32Array


NO_LINES = Lines(
    frozen(np.zeros((0, 1), np.int32)),
    frozen(np.zeros((0, 1), np.float32)),
    frozen(np.zeros((0, LANES), np.int16)),
    frozen(np.zeros(0, np.float32)),
)
"""Stands in for a coder where nothing is coded."""


def _in_lines(rows: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Rows (n, k) padded such that none crosses a cache line that it could stay within."""
    n, width = rows.shape
    per_line = CACHE_LINE // rows.itemsize
    padded = 2 ** (width - 1).bit_length() if width <= per_line else width + -width % per_line
    lines = aligned_empty((n, padded), rows.dtype.type)
    lines[:, :width], lines[:, width:] = rows, 0
    return frozen(lines)


def invert_grams(table: Int32Array, dictionary: Float32Array) -> Float32Array:
    """Inverse Gram matrix (leaves, m, m) of each active set, finite for any atoms."""
    gram = dictionary.astype(np.float64) @ dictionary.astype(np.float64).T
    grams = gram[table[:, :, None], table[:, None, :]]
    inverses = np.linalg.pinv(grams, rcond=_SMALLEST_EIGENVALUE, hermitian=True)
    return inverses.astype(np.float32)
