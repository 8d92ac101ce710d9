"""Runs every kernel of training once, so that no fit has to wait for the compiler.

numba compiles a kernel at its first call and keeps the machine code on disk. Tiny fits take
the same road as real ones, with the same argument types.
"""

import logging
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from trainer.config import FitConfig
from trainer.data.dataset import scan
from trainer.data.vectors import VectorFile
from trainer.fit import fit
from trainer.learn.feature_matrix import FeatureMatrix
from trainer.learn.primal import PrimalProblem, solve_primal

__all__ = ["warm"]

logger = logging.getLogger(__name__)

_TINY = FitConfig(
    recipe="paper",
    samples=200,
    depth=2,
    atoms=8,
    nonzeros=2,
    iterations=1,
    folds=2,
    regularisation=1.0,
)
# Together they call every kernel.
_VARIANTS: tuple[dict[str, object], ...] = (
    {"refinements": 1},
    {"groups": 3, "dictionary_update": "ksvd", "descriptor": "lazebnik-sift"},
    {"recipe": "best"},  # whose colours have signs
)
_SIDE = 48


def warm() -> float:
    """Compile what is not compiled yet; how many seconds it took."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="leafcode-") as folder:
        _write_images(Path(folder))
        for variant in _VARIANTS:
            fit(scan(Path(folder)), _TINY.model_copy(update=variant), "warm")
        _solve_as_of_many(Path(folder))
    return time.perf_counter() - start


def _solve_as_of_many(folder: Path) -> None:
    """The kernel that only a fit of very many images calls."""
    labels = np.arange(6) % 2
    with VectorFile.opened(folder, [slice(0, 4)]) as file:
        for vector in np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32):
            file.append(vector)
        with FeatureMatrix(file, [1.0]) as matrix:
            solve_primal(matrix, PrimalProblem(labels, 2, np.ones(6), np.zeros(6, np.bool_)))


def _write_images(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for label in ("one", "other"):
        (folder / label).mkdir()
        for number in range(3):
            pixels = rng.integers(0, 256, (_SIDE, _SIDE, 3), np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.png")
