"""What the groups look like (section 3.1).

Mean-free 8x8 patches of photographs, 256 atoms in 512 groups of 5, learned together by
Algorithm 2 with K-SVD updates. Prints how many groups use an atom, beside the paper's
figures, and draws the atoms by popularity with all groups of a few chosen ones.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field

from service.engine import ImageError, image
from service.engine.arrays import Float32Array, Int32Array, UInt8Array
from service.engine.config import MAX_ATOMS
from trainer.data.image_files import find_images
from trainer.errors import DataError
from trainer.learn.algorithm2 import CodeSettings, learn_groups
from trainer.parallel import map_ordered
from trainer.settings import Settings

__all__ = [
    "PAPER",
    "PatchSettings",
    "PatchStudy",
    "draw_figure",
    "sample_patches",
    "study_patches",
]

logger = logging.getLogger(__name__)

PAPER = {"median_groups_per_atom": 6, "atoms_in_one_group": 47, "atoms_in_more_than_30": 15}

_SIDE = 8
_LARGEST_IMAGE_SIDE = 1024
_TILE = 3 * _SIDE  # pixels of a drawn atom
_GAP = 2
_SHOWN_ATOMS = 5
_SHOWN_GROUPS = 40


class PatchSettings(Settings):
    """How many patches, atoms and groups, and how long to learn."""

    patches: int = Field(500_000, ge=1, le=10**9, description="patches to learn from")
    atoms: int = Field(256, ge=1, le=MAX_ATOMS, description="atoms of the dictionary")
    groups: int = Field(512, ge=1, le=2**24, description="active sets that are learned")
    nonzeros: int = Field(5, ge=1, le=128, description="atoms a code may use")
    iterations: int = Field(20, ge=1, le=1000, description="rounds of dictionary learning")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="the same seed gives the same result")


@dataclass(frozen=True)
class PatchStudy:
    """Atoms (K, 64), active sets (groups, m), and the relative error of every iteration."""

    dictionary: Float32Array
    table: Int32Array
    relative_errors: tuple[float, ...]

    @property
    def popularity(self) -> Int32Array:
        """How many groups use each atom (K,)."""
        counts = np.bincount(self.table.ravel(), minlength=len(self.dictionary))
        return counts.astype(np.int32)

    def figures(self) -> dict[str, float]:
        """Ours, under the names of the paper's."""
        uses = self.popularity
        return {
            "median_groups_per_atom": float(np.median(uses)),
            "atoms_in_one_group": int((uses == 1).sum()),
            "atoms_in_more_than_30": int((uses > 30).sum()),
        }


def study_patches(folder: Path, settings: PatchSettings) -> PatchStudy:
    """Learn atoms and groups from the photographs below `folder`."""
    rng = np.random.default_rng(settings.seed)
    patches = sample_patches(folder, settings.patches, rng)
    logger.info("%d patches", len(patches))
    learned = learn_groups(
        patches,
        CodeSettings(
            settings.atoms,
            settings.nonzeros,
            settings.iterations,
            groups=settings.groups,
            dictionary_update="ksvd",
        ),
        rng,
    )
    return PatchStudy(learned.coder.dictionary, learned.coder.table, learned.relative_errors)


def sample_patches(folder: Path, count: int, rng: np.random.Generator) -> Float32Array:
    """Patches (about `count`, 64) from random places of all images, their means removed."""
    paths = find_images(folder).images
    if not paths:
        raise DataError(f"{folder} has no images below it")
    per_image = math.ceil(count / len(paths))
    seeds = rng.integers(0, 2**63, len(paths))

    def draw(number: int) -> Float32Array:
        try:
            gray = image.decode(paths[number].read_bytes(), _LARGEST_IMAGE_SIDE)
        except (ImageError, OSError) as error:
            logger.warning("left out %s: %s", paths[number], error)
            return np.empty((0, _SIDE**2), np.float32)
        return _draw(gray, per_image, np.random.default_rng(seeds[number]))

    patches = np.concatenate(list(map_ordered(draw, range(len(paths)), "patches")))
    if not len(patches):
        raise DataError(f"{folder} has no readable image of at least {_SIDE}x{_SIDE} pixels")
    return patches


def _draw(gray: Float32Array, count: int, rng: np.random.Generator) -> Float32Array:
    height, width = gray.shape
    if min(height, width) < _SIDE:
        return np.empty((0, _SIDE**2), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(gray, (_SIDE, _SIDE))
    rows = rng.integers(0, height - _SIDE + 1, count)
    columns = rng.integers(0, width - _SIDE + 1, count)
    patches = windows[rows, columns].reshape(count, _SIDE**2)
    mean_free: Float32Array = patches - patches.mean(axis=1, keepdims=True)
    return mean_free


def draw_figure(study: PatchStudy) -> Image.Image:
    """All atoms, popularity growing down the columns and to the right; groups beneath.

    Each row beneath starts with a chosen atom; its other columns are groups that hold it.
    """
    order = np.argsort(study.popularity, kind="stable")
    height = max(1, round(math.sqrt(len(order) / 2)))
    columns = [order[start : start + height] for start in range(0, len(order), height)]
    rows = [_mosaic(study.dictionary, columns)]
    for atom in _chosen_atoms(study):
        groups = study.table[(study.table == atom).any(axis=1)][:_SHOWN_GROUPS]
        rows.append(_mosaic(study.dictionary, [np.array([atom]), *groups]))
    return _stack(rows)


def _chosen_atoms(study: PatchStudy) -> list[int]:
    """Atoms spread over the range of popularity, unused ones left out."""
    order = np.argsort(study.popularity, kind="stable")
    used = order[study.popularity[order] > 0]
    places = np.linspace(0, len(used) - 1, min(_SHOWN_ATOMS, len(used))).round().astype(int)
    return [int(used[place]) for place in places]


def _mosaic(dictionary: Float32Array, columns: Sequence[npt.NDArray[np.integer]]) -> Image.Image:
    """Atoms drawn one beneath the other, column beside column."""
    step = _TILE + _GAP
    size = (step * len(columns) + _GAP, step * max(map(len, columns)) + _GAP)
    picture = Image.new("L", size, 255)
    for x, column in enumerate(columns):
        for y, atom in enumerate(column):
            tile = Image.fromarray(_grey_levels(dictionary[atom]))
            tile = tile.resize((_TILE, _TILE), Image.Resampling.NEAREST)
            picture.paste(tile, (_GAP + x * step, _GAP + y * step))
    return picture


def _grey_levels(atom: Float32Array) -> UInt8Array:
    """An atom as pixels; zero is mid-grey, whatever its contrast."""
    largest = max(float(np.abs(atom).max()), 1e-12)
    return (127.5 + 127.5 * atom.reshape(_SIDE, _SIDE) / largest).astype(np.uint8)


def _stack(parts: Sequence[Image.Image]) -> Image.Image:
    height = sum(part.height + _TILE for part in parts) - _TILE
    picture = Image.new("L", (max(part.width for part in parts), height), 255)
    top = 0
    for part in parts:
        picture.paste(part, (0, top))
        top += part.height + _TILE
    return picture
