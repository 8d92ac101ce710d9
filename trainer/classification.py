"""From an extractor to a classifier: pooled vectors of the training images, and what fits them.

All is kept block by block: Gram matrices for the search on folds, and the features themselves,
of which the classifier's weights are made in the end.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.engine import FeatureExtractor
from service.engine.arrays import Float32Array
from service.engine.classifier import LinearClassifier
from trainer.features import LearnedFeatures
from trainer.learn.classifier import (
    ClassifierSettings,
    FittedClassifier,
    fit_classifier,
    image_weights,
)
from trainer.learn.held_out import TrainingImages
from trainer.learn.near_duplicates import log_groups, near_duplicate_groups
from trainer.metrics import Labels
from trainer.stages import stage
from trainer.training_vectors import LocalVectors, Pool, TrainingVectors

__all__ = ["Classification", "learn_classification"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Classification:
    """A fitted classifier, and what it was fitted to.

    `extractor` has the blocks that the classifier uses, with their weights. `vectors` are of
    these blocks, and so are the Gram matrices of `training`.
    """

    extractor: FeatureExtractor
    vectors: TrainingVectors
    training: TrainingImages
    fitted: FittedClassifier

    @property
    def has_copies(self) -> bool:
        """Whether copies of the training images were learned from."""
        return self.training.n_copies > 0

    def calibrated_extractor(self) -> FeatureExtractor:
        """The extractor with the scale of probabilities and the threshold that folds gave."""
        weights, fitted = [block.config.weight for block in self.extractor.blocks], self.fitted
        return self.extractor.weighted(weights, fitted.probability_scale, fitted.known_threshold)

    def classifier(self) -> LinearClassifier:
        """The classifier that an engine scores by."""
        own = [block.config.weight for block in self.extractor.blocks]
        weights = self.vectors.block_weights(self.fitted.coefficients, own)
        slices = self.extractor.config.slices
        return LinearClassifier.from_floats(np.concatenate(weights), self.fitted.bias, slices)


def learn_classification(
    learned: LearnedFeatures,
    n_labels: int,
    settings: ClassifierSettings,
    pool: Pool = LocalVectors.pooled,
) -> Classification:
    """A classifier of the training images; the weights of the blocks are where its search starts.

    Blocks that win nothing are left out. Images whose label is `UNKNOWN` show none of the classes.
    """
    extractor, images = learned.extractor, learned.images
    with stage("pooled vectors"):
        vectors = pool(extractor, images)
    logger.info("%d pooled vectors of %d features", len(images), extractor.config.n_features)
    grams, solvers = vectors.grams()
    labels = np.array([image.label for image in images])
    weights = image_weights(labels, settings.class_weight)
    groups = _groups(grams, labels)
    training = TrainingImages(grams, labels, n_labels, groups, weights=weights, solvers=solvers)
    starts = tuple(block.config.weight for block in extractor.blocks)
    fitted = fit_classifier(training, replace(settings, weights=starts))
    used = [number for number, weight in enumerate(fitted.block_weights) if weight]
    chosen = extractor.weighted(fitted.block_weights)
    return Classification(
        chosen,
        vectors.only(chosen, used),
        replace(training, grams=tuple(grams[number] for number in used), solvers=None),
        fitted,
    )


def _groups(grams: Sequence[Float32Array], labels: Labels) -> Labels:
    """Groups of near-duplicates, by all blocks alike; those that are not alone are counted."""
    similarities = sum(grams[1:], grams[0]) / np.float32(len(grams))
    groups = near_duplicate_groups(similarities, labels)
    log_groups(groups)
    return groups
