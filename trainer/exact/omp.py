"""The coder of the paper's baseline: a greedy pursuit in place of the tree.

Every descriptor looks at the whole dictionary, by `spams.omp` of the package `spams-bin`
(extra `bench`, loaded when first needed). What SPAMS calls OMP is its order-recursive
form: each step takes the atom that leaves the smallest residual after projecting on all
chosen ones, where plain OMP takes the largest correlation. On held-out SIFT (1024 atoms,
5 nonzeros) its relative error is .155, that of plain OMP .161.
"""

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from service.engine import DescriptorError, EngineConfig, image, pooling, sift
from service.engine.arrays import Float32Array, Int32Array, frozen
from service.engine.codes import Codes
from service.engine.description import sift_kind
from service.engine.tree import norms_of
from trainer.errors import ConfigError, TrainingError
from trainer.learn.dictionary import first_dictionary, residual_energies, unit_rows
from trainer.learn.ksvd import sweep_ksvd
from trainer.parallel import n_threads

__all__ = [
    "KsvdSettings",
    "OmpCoder",
    "OmpExtractor",
    "OnlineSettings",
    "learn_by_ksvd",
    "learn_online",
    "prepare_pursuit",
    "require_spams",
]


logger = logging.getLogger(__name__)

# SPAMS's number for: least squares with at most `lambda1` nonzeros.
_SPARSITY_MODE = 3


@dataclass(frozen=True)
class OmpCoder:
    """Dictionary (K, d), nonzeros per code, and threads of SPAMS, which change no result."""

    dictionary: Float32Array
    nonzeros: int
    threads: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "dictionary", frozen(self.dictionary.astype(np.float32)))
        most = min(self.dictionary.shape)
        if not 1 <= self.nonzeros <= most:
            raise ConfigError(
                f"nonzeros is {self.nonzeros}, expected 1 to {most} for a dictionary of "
                f"{self.dictionary.shape[0]} atoms and {self.dictionary.shape[1]} values each"
            )

    def encode(self, descriptors: Float32Array) -> Codes:
        """Codes of descriptors (n, d), all of leaf 0.

        Where SPAMS stops early, distinct unused atoms with value 0 fill up.
        """
        self._require_usable(descriptors)
        shape = (descriptors.shape[0], self.nonzeros)
        codes = Codes(
            np.zeros(shape[0], np.int32), np.full(shape, -1, np.int32), np.zeros(shape, np.float32)
        )
        if shape[0]:
            self._pursue(descriptors, codes)
        return codes

    def _require_usable(self, descriptors: Float32Array) -> None:
        width = self.dictionary.shape[1]
        if descriptors.ndim != 2 or descriptors.shape[1] != width:
            raise DescriptorError(
                f"descriptors have the shape {list(descriptors.shape)}, expected [n, {width}]"
            )
        if not np.isfinite(norms_of(descriptors)).all():
            raise DescriptorError("a descriptor has a norm that is not finite")

    def _pursue(self, descriptors: Float32Array, codes: Codes) -> None:
        norms = _norms(self.dictionary)
        atoms = self.dictionary / norms  # SPAMS takes unit norms for granted
        columns = prepare_pursuit(descriptors, atoms, self.nonzeros, self.threads)()
        # Where no independent atom is left, SPAMS repeats one with the value 0.
        columns.sum_duplicates()
        columns.eliminate_zeros()
        rows = np.repeat(np.arange(descriptors.shape[0]), np.diff(columns.indptr))
        places = np.arange(columns.nnz) - columns.indptr[rows]
        codes.atom_ids[rows, places] = columns.indices
        codes.values[rows, places] = columns.data / norms[columns.indices, 0]
        _fill_free_places(codes.atom_ids)


@dataclass(frozen=True)
class OmpExtractor:
    """Bytes to pooled vector as `FeatureExtractor` does it, with OMP in place of the tree."""

    config: EngineConfig
    coder: OmpCoder

    def pooled_vector(self, data: bytes) -> Float32Array:
        """Encoded image -> pooled vector (n_features,)."""
        descriptors = sift.describe(
            image.decode(data, self.config.max_side),
            sift_kind(self.config.view),
            self.config.view.step,
        )
        rows, cols, width = descriptors.shape
        codes = self.coder.encode(descriptors.reshape(rows * cols, width))
        return pooling.pool(codes, (rows, cols), self.config.codes)


@dataclass(frozen=True)
class OnlineSettings:
    """Atoms and nonzeros; how many mini-batches SPAMS's learning sees, and their size."""

    n_atoms: int
    nonzeros: int
    batches: int = 1000
    batch_size: int = 512


def prepare_pursuit(
    descriptors: npt.NDArray[Any], unit_atoms: npt.NDArray[Any], nonzeros: int, threads: int = 1
) -> Callable[[], Any]:
    """SPAMS's pursuit and nothing else, its inputs in place: codes (K, n), sparse by column."""
    omp, x, atoms = _spams().omp, _columns(descriptors), _columns(unit_atoms)
    # Left out, SPAMS 2.6.14 reads uninitialised memory for eps and lambda1: float32 codes
    # came out empty in half of all processes.
    return lambda: omp(x, atoms, L=nonzeros, eps=0.0, lambda1=0.0, numThreads=threads)


def learn_online(
    descriptors: Float32Array, settings: OnlineSettings, rng: np.random.Generator
) -> Float32Array:
    """Dictionary (K, d) for descriptors (n, d) by SPAMS's online learning (Mairal et al.)."""
    learned = _spams().trainDL(
        _columns(descriptors),
        D=_columns(first_dictionary(descriptors, settings.n_atoms, rng)),
        mode=_SPARSITY_MODE,
        lambda1=settings.nonzeros,
        iter=settings.batches,
        batchsize=settings.batch_size,
        numThreads=1,
        verbose=False,
    )
    atoms = np.ascontiguousarray(learned.T, np.float32)
    return atoms / _norms(atoms)  # SPAMS only sees to it that no atom is longer than one


@dataclass(frozen=True)
class KsvdSettings:
    """Atoms, nonzeros, and how often OMP and a sweep over all atoms take turns."""

    n_atoms: int
    nonzeros: int
    iterations: int


def learn_by_ksvd(
    descriptors: Float32Array, settings: KsvdSettings, rng: np.random.Generator
) -> Float32Array:
    """Dictionary (K, d) for descriptors (n, d) by OMP and K-SVD in turn (Aharon et al.).

    An atom that no code uses becomes one of the descriptors that are coded worst.
    """
    dictionary = first_dictionary(descriptors, settings.n_atoms, rng)
    energy = float(np.einsum("ij,ij->", descriptors, descriptors, dtype=np.float64)) or 1.0
    for iteration in range(settings.iterations):
        codes = OmpCoder(dictionary, settings.nonzeros, n_threads()).encode(descriptors)
        swept = sweep_ksvd(descriptors, codes, dictionary)
        dictionary = swept.dictionary
        errors = residual_energies(descriptors, swept.codes, dictionary)
        unused = np.setdiff1d(np.arange(len(dictionary)), codes.atom_ids[codes.values != 0])
        worst = np.argsort(-errors, kind="stable")[: len(unused)]
        dictionary[unused[: len(worst)]] = unit_rows(descriptors[worst])
        relative = float(errors.sum(dtype=np.float64)) / energy
        logger.info(
            "K-SVD iteration %d/%d: relative error %.4f",
            iteration + 1,
            settings.iterations,
            relative,
        )
    return dictionary


def require_spams() -> None:
    """Raise at once where SPAMS is not installed, not after the images were read."""
    _spams()


def _fill_free_places(atom_ids: Int32Array) -> None:
    """Replace each -1 by an atom that its row does not use, the lowest ones in order.

    A row of m places with s atoms leaves at least m - s of the first m atoms unused.
    """
    short = np.flatnonzero(atom_ids[:, -1] < 0)  # atoms stand first, free places last
    ids = atom_ids[short]
    free = ids < 0
    taken = (ids[:, :, None] == np.arange(ids.shape[1])).any(axis=1)
    unused = np.argsort(taken, axis=1, kind="stable")
    turn = np.maximum(np.cumsum(free, axis=1) - 1, 0)
    atom_ids[short] = np.where(free, np.take_along_axis(unused, turn, axis=1), ids)


def _norms(dictionary: Float32Array) -> Float32Array:
    """Norms (K, 1) to divide atoms by: an atom of zeros stays one, and is never chosen."""
    norms: Float32Array = np.linalg.norm(dictionary, axis=1, keepdims=True).astype(np.float32)
    norms[norms == 0] = 1
    return norms


def _columns(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows (n, d) as the Fortran-ordered columns (d, n) that SPAMS works on."""
    return np.asfortranarray(rows.T)


def _spams() -> Any:
    try:
        return importlib.import_module("spams")
    except ImportError as error:
        raise TrainingError(
            "exact OMP needs the package spams-bin; install it with: pip install 'leafcode[bench]'"
        ) from error
