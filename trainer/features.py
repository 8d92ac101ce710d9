"""From training images to a feature extractor: one view of a recipe after the other.

For each view descriptors are drawn, the tree is built, and what the view's blocks need is
learned from the same descriptors: the dictionary and its active sets, means and a projection.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from service.engine import EngineConfig, FeatureExtractor, ImageError, image
from service.engine.arrays import Float32Array
from service.engine.blocks import Block, CodesBlock, ResidualsBlock
from service.engine.config import BlockConfig, CodesConfig, ResidualsConfig, ViewConfig
from service.engine.hashing import Hash, HashFunction
from service.engine.tree import Tree
from trainer.config import FitConfig, suitable_depth
from trainer.data.dataset import LabelledImage
from trainer.data.sampling import (
    Sample,
    SampleSettings,
    UnreadableImage,
    log_unreadable,
    sample_descriptors,
)
from trainer.errors import DataError
from trainer.given.codes import learn_given_codes
from trainer.given.groups import GroupStructure
from trainer.learn.algorithm2 import CodeSettings, LearnedCodes
from trainer.learn.hashing import HashSettings, build_hash, glue_buckets
from trainer.learn.residuals import learn_residuals
from trainer.learn.training_run import RunSettings, learn_hash_codes, learn_tree_codes
from trainer.learn.tree import TreeSettings, build_tree
from trainer.stages import stage

__all__ = [
    "Draw",
    "DrawnDescriptors",
    "FeaturePlan",
    "LearnedFeatures",
    "draw_here",
    "learn_features",
    "learn_tree",
    "sample_settings",
]

logger = logging.getLogger(__name__)

# Images that are looked at to see whether a data set has colours, and the share that must.
_LOOKED_AT = 50
_COLOURED_SHARE = 0.2
# Levels of Cb or Cr, of 255, by which a coloured image differs from grey.
_COLOURED = 3.0


@dataclass(frozen=True)
class FeaturePlan:
    """How to learn: the settings, the groups if they are given, and files.

    The first view's dictionary goes on from `checkpoint`; `scratch` is a folder for descriptors.
    """

    config: FitConfig
    given: GroupStructure | None = None
    checkpoint: Path | None = None
    scratch: Path | None = None


@dataclass(frozen=True)
class LearnedFeatures:
    """An extractor whose blocks have the recipe's first weights, and how it came about.

    `images` are those that could be read. The number of descriptors that were learned from, none
    if they are another model's, and the errors are those of the first view.
    """

    extractor: FeatureExtractor
    images: tuple[LabelledImage, ...]
    unreadable: tuple[UnreadableImage, ...]
    n_descriptors: int
    relative_errors: tuple[float, ...]


class DrawnDescriptors(Protocol):
    """Descriptors of a view, wherever they are, and what is learned from them there."""

    @property
    def n_descriptors(self) -> int:
        """How many there are."""

    @property
    def images(self) -> tuple[LabelledImage, ...]:
        """The images that could be read."""

    @property
    def unreadable(self) -> tuple[UnreadableImage, ...]:
        """Those that could not."""

    def tree(self, settings: TreeSettings) -> Tree:
        """The tree of these descriptors."""

    def codes(
        self, view: ViewConfig, run: RunSettings, plan: FeaturePlan
    ) -> tuple[Hash, LearnedCodes]:
        """What sends them to leaves, and how the leaves code them."""

    def residuals(self, tree: Tree, config: ResidualsConfig) -> ResidualsBlock:
        """A block of their residuals."""


Draw = Callable[[Sequence[LabelledImage], ViewConfig, FeaturePlan], DrawnDescriptors]


@dataclass(frozen=True)
class _LearnedView:
    """A view at its depth, what sends descriptors to its leaves, and its blocks."""

    view: ViewConfig
    hash: Hash
    blocks: tuple[Block, ...]
    relative_errors: tuple[float, ...]


@dataclass(frozen=True)
class _DescriptorsHere:
    """Descriptors in the memory or on the disk of this machine."""

    sample: Sample

    @property
    def n_descriptors(self) -> int:
        return len(self.sample.descriptors)

    @property
    def images(self) -> tuple[LabelledImage, ...]:
        return self.sample.images

    @property
    def unreadable(self) -> tuple[UnreadableImage, ...]:
        return self.sample.unreadable

    def tree(self, settings: TreeSettings) -> Tree:
        return build_tree(self.sample.descriptors, settings)

    def codes(
        self, view: ViewConfig, run: RunSettings, plan: FeaturePlan
    ) -> tuple[Hash, LearnedCodes]:
        return _learn_hash_and_codes(self.sample, view, run, plan)

    def residuals(self, tree: Tree, config: ResidualsConfig) -> ResidualsBlock:
        return learn_residuals(self.sample.descriptors, tree, config)


def draw_here(
    images: Sequence[LabelledImage], view: ViewConfig, plan: FeaturePlan
) -> DrawnDescriptors:
    """Descriptors that are drawn, kept and learned from by this process."""
    return _DescriptorsHere(sample_descriptors(images, sample_settings(view, plan)))


def sample_settings(view: ViewConfig, plan: FeaturePlan) -> SampleSettings:
    """How descriptors of a view are drawn."""
    config = plan.config
    return SampleSettings(config.samples, config.max_side, config.seed, view, plan.scratch)


def learn_features(
    images: Sequence[LabelledImage], plan: FeaturePlan, draw: Draw = draw_here
) -> LearnedFeatures:
    """Views and blocks of the recipe, learned from training images.

    A view other than the first that has too few descriptors, because the images are few or
    small, is left out.
    """
    recipe = plan.config.recipe_for(colours=_have_colours(images, plan.config.max_side))
    first = _drawn(images, recipe.views[0], plan, draw)
    log_unreadable(first.unreadable)
    depth = plan.config.depth_for(first.n_descriptors)
    learned = [_learn_view(first, replace(recipe.views[0], depth=depth), recipe.blocks_of(0), plan)]
    for number, view in enumerate(recipe.views[1:], 1):
        try:
            drawn = _drawn(first.images, view, plan, draw)
            depth = min(view.depth, suitable_depth(drawn.n_descriptors))
            other = replace(plan, given=None, checkpoint=None)
            learned.append(
                _learn_view(drawn, replace(view, depth=depth), recipe.blocks_of(number), other)
            )
        except DataError as error:
            logger.info("no %s: %s", view.descriptor, error)
    return LearnedFeatures(
        _extractor(learned, plan.config),
        first.images,
        first.unreadable,
        first.n_descriptors,
        learned[0].relative_errors,
    )


def _extractor(learned: Sequence[_LearnedView], config: FitConfig) -> FeatureExtractor:
    blocks = [
        block.placed(number, block.config.weight)
        for number, view in enumerate(learned)
        for block in view.blocks
    ]
    engine_config = EngineConfig(
        tuple(view.view for view in learned),
        tuple(block.config for block in blocks),
        config.max_side,
        config.classifier,
    )
    return FeatureExtractor(engine_config, [view.hash for view in learned], blocks)


def _have_colours(images: Sequence[LabelledImage], max_side: int) -> bool:
    """Whether some of the images show more than grey."""
    looked_at = images[:: max(1, len(images) // _LOOKED_AT)]
    coloured = sum(_has_colours(labelled.path, max_side) for labelled in looked_at)
    return coloured >= _COLOURED_SHARE * len(looked_at)


def _has_colours(path: Path, max_side: int) -> bool:
    try:
        colours = image.decode_picture(path.read_bytes(), max_side).colours
    except (ImageError, OSError):
        return False
    return colours is not None and bool(np.abs(colours[:, :, 1:] - 128.0).mean() > _COLOURED)


def _drawn(
    images: Sequence[LabelledImage], view: ViewConfig, plan: FeaturePlan, draw: Draw
) -> DrawnDescriptors:
    with stage("descriptors"):
        drawn = draw(images, view, plan)
    logger.info("%d descriptors (%s)", drawn.n_descriptors, view.descriptor)
    return drawn


def _learn_view(
    drawn: DrawnDescriptors, view: ViewConfig, blocks: Sequence[BlockConfig], plan: FeaturePlan
) -> _LearnedView:
    """A view and its blocks, from descriptors that are drawn already."""
    codes = next((block for block in blocks if isinstance(block, CodesConfig)), None)
    made: list[Block] = []
    errors: tuple[float, ...] = ()
    if codes is None:
        hash_: Hash = learn_tree(drawn, view, plan.config)
    else:
        with stage("dictionary"):
            hash_, learned = drawn.codes(view, _run_settings(codes, view, plan), plan)
        made.append(CodesBlock(codes, learned.coder))
        errors = learned.relative_errors
    for block in blocks:
        if isinstance(block, ResidualsConfig) and isinstance(hash_, Tree):
            levels = tuple(min(level, view.depth) for level in block.levels)
            with stage("residuals"):
                made.append(drawn.residuals(hash_, replace(block, levels=levels)))
    return _LearnedView(view, hash_, tuple(made), errors)


def learn_tree(drawn: DrawnDescriptors, view: ViewConfig, config: FitConfig) -> Tree:
    """The tree of a view."""
    with stage("tree"):
        tree = drawn.tree(TreeSettings(view.depth, config.rounds, config.radius, view.has_signs))
    logger.info("tree of depth %d, %d leaves", view.depth, tree.n_leaves)
    return tree


def _learn_hash_and_codes(
    sample: Sample, view: ViewConfig, run: RunSettings, plan: FeaturePlan
) -> tuple[Hash, LearnedCodes]:
    config, descriptors = plan.config, sample.descriptors
    if view.hash == "tree":
        tree = learn_tree(_DescriptorsHere(sample), view, config)
        if plan.given is None:
            return learn_tree_codes(descriptors, tree, run, sample.image_ids)
        return tree, _learn_codes(descriptors, tree, run, plan.given)
    settings = HashSettings(
        view.depth, config.directions, view.hash == "sine", config.smallest_bucket
    )
    with stage("tree"):
        bare = build_hash(descriptors, settings, np.random.default_rng([config.seed, 2]))
        glued = glue_buckets(bare, descriptors, config.smallest_bucket)
    logger.info("hash of %d bits, %d full buckets", view.depth, len(np.unique(glued.owners)))
    learned = _learn_codes(descriptors, glued, run, plan.given)
    return bare, replace(learned, coder=glued.spread(learned.coder))


def _learn_codes(
    descriptors: Float32Array, hash_: HashFunction, run: RunSettings, given: GroupStructure | None
) -> LearnedCodes:
    """Codes for a hash that stays as it is, with the groups given or learned."""
    if given is None:
        return learn_hash_codes(descriptors, hash_, run)
    return learn_given_codes(descriptors, hash_, given, run.codes, np.random.default_rng(run.seed))


def _run_settings(codes: CodesConfig, view: ViewConfig, plan: FeaturePlan) -> RunSettings:
    config = plan.config
    settings = CodeSettings(
        codes.n_atoms,
        codes.nonzeros,
        config.iterations,
        config.groups,
        config.dictionary_update,
        view.has_signs,
    )
    return RunSettings(settings, config.refinements, config.seed, plan.checkpoint)
