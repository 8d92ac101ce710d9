"""The classifier of more images than pooled vectors and Gram matrices can be kept of in memory.

Weights between blocks and the regularisation are chosen with a part of the images, by Gram
matrices. Then the pooled vectors of all images go to a file, and the classifier is solved by
passes over it. One fold is held out, for calibration and to tell how good the classifier is.
"""

import logging
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from service.engine import FeatureExtractor
from service.engine.arrays import Float32Array, Float64Array
from service.engine.classifier import LinearClassifier
from trainer.classification import learn_classification
from trainer.cost import PART_OF_MANY
from trainer.data.dataset import LabelledImage
from trainer.features import LearnedFeatures
from trainer.learn.classifier import ClassifierSettings, FittedClassifier, image_weights
from trainer.learn.held_out import UNKNOWN, Choice, HeldOut, Mask, stratified_folds
from trainer.learn.near_duplicates import log_groups, near_duplicate_groups_of_many
from trainer.learn.primal import PrimalProblem, solve_primal
from trainer.metrics import Labels
from trainer.stages import stage
from trainer.workplace import THIS_MACHINE, Workplace

__all__ = ["ManyClassification", "learn_from_many", "representative_part"]

logger = logging.getLogger(__name__)

_FEWEST_OF_CLASS = 2


@dataclass(frozen=True)
class ManyClassification:
    """A classifier with weights (n_features, n_labels) for the pooled vectors of `extractor`.

    It is used as a `Classification` is.
    """

    extractor: FeatureExtractor
    weights: Float32Array
    fitted: FittedClassifier
    has_copies: bool

    def calibrated_extractor(self) -> FeatureExtractor:
        """The extractor with the scale of probabilities and the threshold that the fold gave."""
        weights, fitted = [block.config.weight for block in self.extractor.blocks], self.fitted
        return self.extractor.weighted(weights, fitted.probability_scale, fitted.known_threshold)

    def classifier(self) -> LinearClassifier:
        """The classifier that an engine scores by."""
        slices = self.extractor.config.slices
        return LinearClassifier.from_floats(self.weights, self.fitted.bias, slices)


def learn_from_many(  # noqa: PLR0913  # what, how, and where
    learned: LearnedFeatures,
    n_labels: int,
    settings: ClassifierSettings,
    scratch: Path | None = None,
    *,
    mirrored: bool = False,
    workplace: Workplace = THIS_MACHINE,
) -> ManyClassification:
    """A classifier of the training images, and of mirrored copies if they are asked for.

    Files are in the folder `scratch`, or in that for temporary files.
    """
    extractor, choice = _choose(learned, n_labels, settings, workplace)
    rows = _Rows.of(learned.images, settings, mirrored=mirrored)
    images = [rows.images[place] for place in rows.places]
    with ExitStack() as stack:
        with stage("pooled vectors"):
            folder = scratch or Path(tempfile.gettempdir())
            stored = workplace.store(extractor, images, rows.are_copies, folder)
            vectors = stack.enter_context(stored)
        n_features = extractor.config.n_features
        logger.info("%d pooled vectors of %d features, on disk", len(images), n_features)
        held = _held_out(vectors.sketches, rows, settings)
        problem = PrimalProblem(
            rows.labels, n_labels, choice.regularisation * rows.weights, held, settings.seed
        )
        with vectors.matrix(choice.weights) as matrix:
            solved = solve_primal(matrix, problem)
    tested = _tested(solved.held_out_scores, rows, held)
    norm = np.float32(np.linalg.norm(choice.weights))
    nothing = np.empty((0, n_labels), np.float32)
    fitted = FittedClassifier.of(choice, nothing, solved.bias, tested)
    return ManyClassification(extractor, solved.weights / norm, fitted, mirrored)


def _choose(
    learned: LearnedFeatures, n_labels: int, settings: ClassifierSettings, workplace: Workplace
) -> tuple[FeatureExtractor, Choice]:
    """The blocks that are used, with their weights, and the regularisation."""
    if settings.fixed_weights and settings.regularisation is not None:
        weights = tuple(block.config.weight for block in learned.extractor.blocks)
        return learned.extractor, Choice(weights, settings.regularisation)
    labels = np.array([image.label for image in learned.images])
    part = representative_part(labels, PART_OF_MANY, settings.seed)
    logger.info("weights and regularisation are chosen with %d of the images", len(part))
    images = tuple(learned.images[place] for place in part)
    part_of_all = replace(learned, images=images)
    chosen = learn_classification(part_of_all, n_labels, settings, workplace.pool)
    weights = tuple(block.config.weight for block in chosen.extractor.blocks)
    return chosen.extractor, Choice(weights, chosen.fitted.regularisation)


def representative_part(labels: Labels, count: int, seed: int) -> Labels:
    """Places of about `count` images, of each class as large a share, but two if it has them."""
    rng = np.random.default_rng([seed, 5])
    members = []
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        members.append(own[: max(_FEWEST_OF_CLASS, round(count * len(own) / len(labels)))])
    return np.sort(np.concatenate(members))


@dataclass(frozen=True)
class _Rows:
    """The rows of the file: images and copies in a random order, so that chunks are alike.

    places (n,) are those of the images, labels and weights (n,) theirs; `are_copies` (n,).
    """

    images: Sequence[LabelledImage]
    places: Labels
    labels: Labels
    weights: Float64Array
    are_copies: Mask

    @classmethod
    def of(
        cls, images: Sequence[LabelledImage], settings: ClassifierSettings, *, mirrored: bool
    ) -> "_Rows":
        labels = np.array([image.label for image in images])
        weights = image_weights(labels, settings.class_weight)
        weights = np.ones(len(images)) if weights is None else weights
        n_rows = (1 + mirrored) * len(images)
        order = np.random.default_rng([settings.seed, 6]).permutation(n_rows)
        places = order % len(images)
        return cls(images, places, labels[places], weights[places], order >= len(images))


def _held_out(sketches: Float32Array, rows: _Rows, settings: ClassifierSettings) -> Mask:
    """The rows (n,) of one fold: no near-duplicates of others, copies with their originals."""
    originals = np.flatnonzero(~rows.are_copies)
    originals = originals[np.argsort(rows.places[originals])]
    labels = rows.labels[originals]
    groups = near_duplicate_groups_of_many(sketches[originals], labels)
    log_groups(groups)
    masks = stratified_folds(labels, settings.folds, settings.seed, groups)
    return masks[0][rows.places] if masks else np.zeros(len(rows.places), np.bool_)


def _tested(scores: Float32Array, rows: _Rows, held: Mask) -> HeldOut | None:
    """Scores of the held-out images by their places; None if there are none."""
    labels, places, found = rows.labels[held], rows.places[held], scores.astype(np.float64)
    order = np.argsort(places, kind="stable")
    order = order[~rows.are_copies[held][order]]
    known, unknown = order[labels[order] != UNKNOWN], order[labels[order] == UNKNOWN]
    if not len(known):
        return None
    return HeldOut(found[known], labels[known], places[known], found[unknown], places[unknown])
