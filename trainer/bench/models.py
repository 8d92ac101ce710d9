"""Models to measure: real trees over real descriptors, as bundles on disk.

Speed depends on the shapes, on how descriptors spread over the leaves and on which
atoms the leaves share, not on accuracy. So the tree is the trainer's own and its active
sets are chosen by SOMP, but atoms are descriptors, scaled, and the classifier's weights
are random. Bundles are written and loaded as anybody's are, tensors memory-mapped.
"""

import hashlib
import json
import logging
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from service.engine import Engine, EngineConfig, FeatureExtractor, Manifest, write_bundle
from service.engine.arrays import Float32Array
from service.engine.blocks import CodesBlock
from service.engine.classifier import LinearClassifier
from service.engine.coding import Coder
from service.engine.config import CodesConfig, ViewConfig
from service.engine.tree import Tree
from trainer.bench.settings import BenchSettings, ModelSize
from trainer.config import FitConfig
from trainer.data.dataset import LabelledImage
from trainer.data.sampling import SampleSettings, sample_descriptors
from trainer.features import FeaturePlan, learn_features
from trainer.fit import bundle_of
from trainer.learn.dictionary import first_dictionary
from trainer.learn.somp import choose_active_sets, group_by_leaf
from trainer.learn.tree import TreeSettings, build_tree
from trainer.recipes import RecipeName

__all__ = ["UNLIMITED_SIDE", "Models", "draw_descriptors"]

logger = logging.getLogger(__name__)

# Lifts the resize limit: photographs are measured at their full size, and at twice it.
UNLIMITED_SIDE = 4096


class Models:
    """Bundles over one tree, built when first asked for, kept in `folder`."""

    def __init__(self, folder: Path, images: tuple[Path, ...], settings: BenchSettings) -> None:
        self.folder = folder
        self.images = images
        self.settings = settings
        self._coders: dict[ModelSize, Coder] = {}

    def load(
        self, size: ModelSize | None = None, *, max_side: int = UNLIMITED_SIDE, threads: int = 1
    ) -> Engine:
        """The engine of a model of this size, the usual one unless given."""
        return Engine.load(self.bundle(size, max_side=max_side), threads)

    def bundle(self, size: ModelSize | None = None, *, max_side: int = UNLIMITED_SIDE) -> Path:
        """The version folder of a model of this size."""
        size = size or self.settings.size
        name = f"{self._origin}-{size.depth}-{size.atoms}-{size.nonzeros}-{max_side}"
        folder = self.folder / name / "1"
        if not folder.exists():
            logger.info("model of depth %d, %d atoms, %d nonzeros", *vars(size).values())
            self._write(size, max_side, folder)
        return folder

    def load_recipe(self, name: RecipeName) -> Engine:
        """The engine of a recipe.

        Views and blocks are learned from the photographs, so that the walk down a tree and the
        entries of its tables are those of a real model; labels are drawn at random.
        """
        folder = self.folder / f"{self._origin}-{name}" / "1"
        if not folder.exists():
            logger.info("model of the recipe %s", name)
            config = FitConfig(
                recipe=name,
                samples=self.settings.samples,
                atoms=self.settings.atoms,
                nonzeros=self.settings.nonzeros,
                iterations=1,
            )
            images = [LabelledImage(path, 0) for path in self.images]
            extractor = learn_features(images, FeaturePlan(config)).extractor
            self._publish(extractor, folder)
        return Engine.load(folder)

    def _write(self, size: ModelSize, max_side: int, folder: Path) -> None:
        codes = CodesConfig(size.atoms, size.nonzeros)
        config = EngineConfig.of_codes(ViewConfig(size.depth), codes, max_side)
        blocks = [CodesBlock(codes, self._coder(size))]
        self._publish(FeatureExtractor(config, [self._tree_of(size.depth)], blocks), folder)

    def _publish(self, extractor: FeatureExtractor, folder: Path) -> None:
        labels = tuple(f"label {number}" for number in range(self.settings.labels))
        created = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = Manifest(folder.parent.name, 1, created, extractor.config, labels)
        classifier = self._classifier(extractor.config)
        write_bundle(bundle_of(extractor, classifier, manifest), folder)

    @cached_property
    def _origin(self) -> str:
        """Tells bundles of other images or settings apart in a folder that is kept."""
        facts = [
            *(getattr(self.settings, name) for name in ("samples", "depth", "labels", "seed")),
            *(path.name for path in self.images),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8]

    @cached_property
    def _descriptors(self) -> Float32Array:
        return draw_descriptors(self.images, self.settings.samples, self.settings.seed)

    @cached_property
    def _tree(self) -> Tree:
        logger.info("tree of depth %d", self.settings.depth)
        return build_tree(self._descriptors, TreeSettings(self.settings.depth, wide=False))

    def _tree_of(self, depth: int) -> Tree:
        """The upper levels of the one tree are the tree of a smaller depth."""
        nodes = 2**depth - 1
        return Tree(self._tree.directions[:nodes], self._tree.cuts[:nodes])

    def _coder(self, size: ModelSize) -> Coder:
        if size not in self._coders:
            self._coders[size] = self._choose_atoms(size)
        return self._coders[size]

    def _choose_atoms(self, size: ModelSize) -> Coder:
        tree, descriptors = self._tree_of(size.depth), self._descriptors
        rng = np.random.default_rng(self.settings.seed)
        dictionary = first_dictionary(descriptors, size.atoms, rng)
        leaves = group_by_leaf(descriptors, tree.route(descriptors), tree.n_leaves)
        table = choose_active_sets(leaves, dictionary, size.nonzeros)
        return Coder.from_table(table, dictionary, wide=False)

    def _classifier(self, config: EngineConfig) -> LinearClassifier:
        rng = np.random.default_rng(self.settings.seed)
        shape = (config.n_features, self.settings.labels)
        weights = rng.standard_normal(shape, np.float32)
        return LinearClassifier.from_floats(
            weights, np.zeros(self.settings.labels, np.float32), config.slices
        )


def draw_descriptors(images: tuple[Path, ...], count: int, seed: int) -> Float32Array:
    """`count` descriptors (n, 128) of all images, shuffled: neighbours have nothing in common."""
    labelled = [LabelledImage(path, 0) for path in images]
    settings = SampleSettings(count, max_side=UNLIMITED_SIDE, seed=seed)
    drawn = sample_descriptors(labelled, settings).descriptors
    order = np.random.default_rng(seed).permutation(len(drawn))[:count]
    shuffled: Float32Array = drawn[order]
    return shuffled
