"""Trees and dictionaries of an experiment, each learned once and kept on disk.

The descriptors that they are learned from are drawn when one of them is missing, and are
the same for all of them.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from service.engine.arrays import Float32Array
from service.engine.coding import Coder
from service.engine.config import ViewConfig
from service.engine.sift import SiftKind
from service.engine.tree import Tree
from trainer.config import FitConfig
from trainer.data.dataset import LabelledImage
from trainer.data.sampling import SampleSettings, sample_descriptors
from trainer.errors import TrainingError
from trainer.exact.omp import OmpCoder, OmpExtractor, OnlineSettings, learn_online
from trainer.learn.algorithm2 import CodeSettings, learn_codes
from trainer.learn.checkpoint import fingerprint
from trainer.learn.tree import TreeSettings, build_tree
from trainer.parallel import one_blas_thread
from trainer.reproduce.cache import Arrays, Cache, Entry
from trainer.reproduce.cells import Cell
from trainer.reproduce.features import Features, OmpFeatures, TreeFeatures

__all__ = ["Models", "NotLearnedError", "Source", "cell_config", "files_fingerprint"]

logger = logging.getLogger(__name__)

# To be raised when learning gives other tensors than before for the same settings.
_LEARNING_VERSION = 2

# What of a fit's settings the tree depends on, and what dictionaries depend on besides.
_TREE_SETTINGS = ("samples", "rounds", "radius", "max_side", "seed")
_CODE_SETTINGS = ("iterations", "dictionary_update")


class NotLearnedError(TrainingError):
    """A model is not on disk and was not to be learned."""


@dataclass(frozen=True)
class Source:
    """Images to learn from, and words that tell them from others in the names of files."""

    images: tuple[LabelledImage, ...]
    words: str
    may_learn: bool = True


def cell_config(config: FitConfig, cell: Cell) -> FitConfig:
    """The settings of a fit for one cell."""
    of_cell = {name: getattr(cell, name) for name in ("atoms", "nonzeros", "descriptor")}
    return FitConfig.of({**config.model_dump(), **of_cell})


def files_fingerprint(root: Path, paths: Sequence[Path]) -> str:
    """SHA-256 over names and sizes of files, in their order."""
    files = [[path.relative_to(root).as_posix(), path.stat().st_size] for path in paths]
    return fingerprint({"files": files})


@dataclass(frozen=True)
class Models:
    """What is learned from one source for one kind of descriptor."""

    cache: Cache
    config: FitConfig
    descriptor: SiftKind
    root: Path
    source: Source

    def features(self, cells: Sequence[Cell]) -> Features:
        """Learned features for cells that share a coder, or for one of OMP."""
        configs = [cell_config(self.config, cell) for cell in cells]
        if cells[0].coder == "omp":
            (config,) = configs
            coder = OmpCoder(self._omp_dictionary(config), config.nonzeros)
            return OmpFeatures(OmpExtractor(config.engine_config(depth=1), coder))
        coders = tuple(self._coder(config) for config in configs)
        engines = tuple(config.engine_config(self._depth) for config in configs)
        return TreeFeatures(self._tree, coders, engines)

    @property
    def _depth(self) -> int:
        return self.config.depth_for(self.config.samples)

    @cached_property
    def _descriptors(self) -> Float32Array:
        if not self.source.may_learn:
            raise NotLearnedError(f"a model of {self.source.words} is not on disk")
        config = self.config
        logger.info("drawing descriptors of %s", self.source.words)
        view = ViewConfig(self._depth, self.descriptor)
        settings = SampleSettings(config.samples, config.max_side, config.seed, view)
        return sample_descriptors(self.source.images, settings).descriptors

    @cached_property
    def _origin(self) -> dict[str, object]:
        """Everything that all models of this source depend on."""
        settings = self.config.to_json()
        return {
            **{name: settings[name] for name in _TREE_SETTINGS},
            "descriptor": self.descriptor,
            "files": files_fingerprint(self.root, [image.path for image in self.source.images]),
            "version": _LEARNING_VERSION,
        }

    @cached_property
    def _tree(self) -> Tree:
        entry = self._entry("tree", {"depth": self._depth})
        arrays = self.cache.arrays(entry)
        if arrays is None:
            logger.info("learning %s of depth %d", entry.words, self._depth)
            config = self.config
            settings = TreeSettings(self._depth, config.rounds, config.radius, wide=False)
            tree = build_tree(self._descriptors, settings)
            arrays = {"directions": tree.directions, "cuts": tree.cuts}
            self.cache.keep_arrays(entry, arrays)
        return Tree(arrays["directions"], arrays["cuts"])

    def _coder(self, config: FitConfig) -> Coder:
        entry = self._entry("codes", {"depth": self._depth, **_code_facts(config)})
        arrays = self.cache.arrays(entry)
        if arrays is None:
            logger.info("learning %s of %d atoms", entry.words, config.atoms)
            arrays = self._learned_codes(config)
            self.cache.keep_arrays(entry, arrays)
        return Coder.from_table(arrays["table"], arrays["dictionary"], wide=False)

    def _learned_codes(self, config: FitConfig) -> Arrays:
        settings = CodeSettings(
            config.atoms,
            config.nonzeros,
            config.iterations,
            dictionary_update=config.dictionary_update,
            wide=False,
        )
        rng = np.random.default_rng(config.seed)
        learned = learn_codes(self._descriptors, self._tree, settings, rng)
        coder, errors = learned.coder, np.array(learned.relative_errors)
        return {"table": coder.table, "dictionary": coder.dictionary, "errors": errors}

    def _omp_dictionary(self, config: FitConfig) -> Float32Array:
        entry = self._entry("omp", {"atoms": config.atoms, "nonzeros": config.nonzeros})
        arrays = self.cache.arrays(entry)
        if arrays is None:
            logger.info("learning %s of %d atoms", entry.words, config.atoms)
            online = OnlineSettings(config.atoms, config.nonzeros)
            rng = np.random.default_rng(config.seed)
            with one_blas_thread():
                arrays = {"dictionary": learn_online(self._descriptors, online, rng)}
            self.cache.keep_arrays(entry, arrays)
        return arrays["dictionary"]

    def _entry(self, kind: str, facts: dict[str, object]) -> Entry:
        words = f"{kind}-{self.source.words}-{self.descriptor}"
        return Entry("models", words, fingerprint({**self._origin, "kind": kind, **facts}))


def _code_facts(config: FitConfig) -> dict[str, object]:
    settings = config.to_json()
    return {name: settings[name] for name in ("atoms", "nonzeros", *_CODE_SETTINGS)}
