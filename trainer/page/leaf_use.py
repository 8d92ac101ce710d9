"""How images use what was learned: descriptors in each leaf, and the atoms that count most."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.engine import Engine, ImageError
from service.engine.arrays import Float64Array
from trainer.data.dataset import LabelledImage
from trainer.parallel import map_ordered

__all__ = ["LeafUse", "measure_leaf_use"]

_MOST_IMAGES = 50


@dataclass(frozen=True)
class LeafUse:
    """Descriptors (n_leaves,) in each leaf, and the sum (n_atoms,) of each atom's absolute values.

    Both are of all descriptors of the first block of codes, of `n_images` images.
    """

    n_images: int
    leaves: npt.NDArray[np.int64]
    atoms: Float64Array

    @property
    def leaves_of_half(self) -> int:
        """How many of the fullest leaves have half of the descriptors."""
        filled = np.sort(self.leaves)[::-1].cumsum()
        return int(np.searchsorted(filled, filled[-1] / 2)) + 1


def measure_leaf_use(engine: Engine, images: Sequence[LabelledImage]) -> LeafUse | None:
    """Code some of the images, evenly chosen; None if not one of them can be read."""
    step = -(-len(images) // _MOST_IMAGES) or 1
    n_leaves, n_atoms = engine.hash.n_leaves, engine.config.codes.n_atoms

    def use(image: LabelledImage) -> tuple[npt.NDArray[np.int64], Float64Array] | None:
        try:
            grid = engine.describe(engine.decode(image.path.read_bytes()))
        except (ImageError, OSError):
            return None
        codes = engine.encode(grid.reshape(-1, grid.shape[2]))
        values = np.abs(codes.values).ravel()
        leaves = np.bincount(codes.leaf_ids, minlength=n_leaves)
        atoms = np.bincount(codes.atom_ids.ravel(), weights=values, minlength=n_atoms)
        return leaves, atoms.astype(np.float64)

    found = [each for each in map_ordered(use, images[::step], "leaves") if each is not None]
    if not found:
        return None
    leaves, atoms = (np.sum(counts, axis=0) for counts in zip(*found, strict=True))
    return LeafUse(len(found), leaves, atoms)
