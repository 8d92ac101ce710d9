"""Sparse codes: the look-up table names a leaf's atoms, a cached inverse their values.

The inverse is that of the Gram matrix of each active set; the dictionary is shared. At
depth 16 with 5 nonzeros that is 7 MB where a pseudo-inverse per leaf would take 168 MB.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from service.engine.arrays import (
    CACHE_LINE,
    AtomIds,
    Factors,
    FixedRows,
    Float32Array,
    Float64Array,
    Int32Array,
    Tensors,
    aligned_empty,
    frozen,
)
from service.engine.codes import Codes
from service.engine.errors import DescriptorError
from service.engine.fixedpoint import (
    Descriptors,
    FixedPoint,
    block_scratch,
    is_wide,
    quantise_rows,
)
from service.engine.kernels.coding import solve_codes
from service.engine.kernels.integers import LANES
from service.engine.kernels.leaves import LeafTables

__all__ = ["Coder", "invert_grams", "no_coder"]

# The largest narrow factor of a leaf.
_LARGEST = 2**15 - 1

# Directions whose share of the Gram matrix is below this are dropped, so that
# linearly dependent atoms share their value instead of blowing it up.
_SMALLEST_EIGENVALUE = 1e-4


@dataclass(frozen=True)
class Coder:
    """Look-up table (leaves, m), atoms (K, w) in fixed point and inverse Grams (leaves, m, m).

    Atoms times their scales (K,) are the dictionary. Columns from `width` on are padding; without
    `width` there are none.
    """

    table: Int32Array
    atoms: FixedRows
    atom_scales: Float32Array
    inverse_grams: Float32Array
    width: int | None = None

    def __post_init__(self) -> None:
        for name in ("table", "atoms", "atom_scales", "inverse_grams"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    @classmethod
    def from_table(
        cls,
        table: Int32Array,
        dictionary: Float32Array | Float64Array,
        *,
        wide: bool = True,
        invert: "Invert | None" = None,
    ) -> "Coder":
        """A coder whose inverses are computed from its atoms, as they are after rounding."""
        atoms, scales = quantise_rows(dictionary, wide=wide)
        width = dictionary.shape[1]
        inverses = (invert or invert_grams)(table, atoms[:, :width] * scales[:, None])
        return cls(table, atoms, scales.astype(np.float32), inverses, width)

    @classmethod
    def from_tensors(cls, tensors: Tensors) -> "Coder":
        """The coder that a bundle's tensors hold; nothing is copied."""
        table, atoms, atom_scales, inverse_grams = (tensors[name] for name in _TENSORS)
        return cls(table, atoms, atom_scales, inverse_grams)

    def tensors(self) -> Tensors:
        """The tensors that a bundle stores of the coder, by name."""
        return {name: getattr(self, name) for name in _TENSORS}

    @cached_property
    def dictionary(self) -> Float32Array:
        """The dictionary (K, d) as it is after rounding, copied at the first use."""
        atoms = self.atoms[:, : self.width].astype(np.float32)
        return frozen(atoms * self.atom_scales[:, None])

    @property
    def wide(self) -> bool:
        """Whether descriptors are coded by 16-bit directions."""
        return is_wide(self.atoms)

    def widened(self) -> "Coder":
        """The same atoms, for descriptors that cannot be narrow."""
        return replace(self, atoms=self.atoms.astype(np.int16))

    def encode(self, descriptors: Float32Array | Descriptors, leaf_ids: Int32Array) -> Codes:
        """Codes of n descriptors that were routed to leaf_ids (n,), each below `leaves`."""
        descriptors = Descriptors.of(descriptors)
        self._check(descriptors, leaf_ids)
        codes = Codes.empty(leaf_ids, self.table.shape[1])
        for rows, part in descriptors.parts(wide=self.wide):
            self.encode_into(codes.part(rows), part)
        return codes

    def _check(self, descriptors: Descriptors, leaf_ids: Int32Array) -> None:
        """Reject what would make the kernel, which checks nothing, read beyond its arrays."""
        n_leaves, width = len(self.table), self.atoms.shape[1]
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

    def encode_into(self, codes: Codes, part: FixedPoint) -> None:
        """Fill the atom ids and values of `codes`, whose leaf ids are set and in range."""
        solve_codes(
            part.directions,
            part.steps,
            frozen(codes.leaf_ids),
            self.leaves,
            self.atoms,
            block_scratch(self.table.shape[1]),
            codes.atom_ids,
            codes.values,
        )

    @cached_property
    def leaves(self) -> LeafTables:
        """What kernels read of leaves, in their layout, made at the first use."""
        n, nonzeros = self.table.shape
        n_factors, used = nonzeros**2, nonzeros**2 + nonzeros
        factors, scales = self._factors()
        in_line, in_scale = CACHE_LINE // factors.itemsize, scales.itemsize // factors.itemsize
        width = used + in_scale
        kind: type[np.uint16 | np.int32] = np.int32 if self.wide else np.uint16
        rows = aligned_empty((n, width + -width % in_line), kind)
        rows[:] = 0
        rows.view(factors.dtype)[:, :n_factors] = factors.reshape(n, n_factors)
        rows[:, n_factors:used] = self.table
        rows.view(np.float32)[:, used // in_scale] = scales
        atom_ids: AtomIds = frozen(rows)
        return LeafTables(atom_ids.view(factors.dtype), atom_ids, atom_ids.view(np.float32))

    def _factors(self) -> tuple[Factors, Float32Array]:
        """Factors (leaves, m, m) and scales (leaves,): what multiplies products of integers.

        Where they are beyond all floats, which no training makes them, so are the values of codes.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            exact = self.inverse_grams * self.atom_scales[self.table][:, :, None]
            if self.wide:
                return exact, np.ones(len(exact), np.float32)
            scales = np.abs(exact).max(axis=(1, 2), initial=0) / np.float32(_LARGEST)
            exact /= np.where(scales > 0, scales, 1)[:, None, None]
            return np.rint(exact, out=exact).astype(np.int16), scales


Invert = Callable[[Int32Array, Float64Array], Float32Array]

_TENSORS = ("table", "atoms", "atom_scales", "inverse_grams")


def no_coder(*, wide: bool) -> Coder:
    """Stands in for a coder where nothing is coded."""
    none = np.zeros(0, np.float32)
    atoms = np.zeros((0, LANES), np.int16 if wide else np.int8)
    return Coder(np.zeros((0, 1), np.int32), atoms, none, none.reshape(0, 1, 1))


def invert_grams(table: Int32Array, dictionary: Float64Array) -> Float32Array:
    """Inverse Gram matrix (leaves, m, m) of each active set, finite for any atoms."""
    gram = dictionary @ dictionary.T
    grams = gram[table[:, :, None], table[:, None, :]]
    inverses = np.linalg.pinv(grams, rcond=_SMALLEST_EIGENVALUE, hermitian=True)
    return inverses.astype(np.float32)
