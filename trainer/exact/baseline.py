"""The baseline of the paper's tables: the same pipeline with OMP in place of the tree.

Same descriptors, pooling, classifier and split as `fit` with the same settings, so that
the figures are comparable. There is no bundle, because nothing serves at this speed.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from service.engine import ImageError
from service.engine.arrays import Float32Array
from trainer.config import FitConfig
from trainer.data.dataset import Dataset, LabelledImage, Split
from trainer.data.sampling import (
    SampleSettings,
    UnreadableImage,
    log_unreadable,
    sample_descriptors,
)
from trainer.errors import ConfigError, DataError
from trainer.evaluate import Evaluation, evaluate_scores
from trainer.exact.omp import (
    KsvdSettings,
    OmpCoder,
    OmpExtractor,
    OnlineSettings,
    learn_by_ksvd,
    learn_online,
    require_spams,
)
from trainer.fit import trainable, training_split
from trainer.learn.classifier import ClassifierSettings, fit_classifier
from trainer.learn.grams import block_weights, column_slices, gram_matrix
from trainer.learn.held_out import TrainingImages
from trainer.parallel import map_ordered

__all__ = ["OmpDictionary", "evaluate_omp", "measure_baseline"]

logger = logging.getLogger(__name__)

OmpDictionary = Literal["spams", "ksvd"]


def measure_baseline(dataset: Dataset, config: FitConfig, kind: OmpDictionary) -> Evaluation:
    """Dictionary and classifier from the training images of the split, figures on its others."""
    if config.train_per_class is None:
        raise ConfigError(
            "train_per_class is not set, expected a number: the baseline is tested on the "
            "images that it leaves"
        )
    require_spams()
    dataset = trainable(dataset)
    split = training_split(dataset, config)
    if not split.test:
        raise DataError(f"{dataset.root} has no images beyond {config.train_per_class} a class")
    return evaluate_omp(split, config, _learn_dictionary(split.train, config, kind))


def evaluate_omp(split: Split, config: FitConfig, dictionary: Float32Array) -> Evaluation:
    """OMP with a dictionary (K, d) on the test images of `split`, all else by `config`."""
    plain = config.engine_config(depth=1)
    engine_config = replace(plain, blocks=(replace(plain.codes, n_atoms=len(dictionary)),))
    extractor = OmpExtractor(engine_config, OmpCoder(dictionary, config.nonzeros))
    names = {image.label: image.path.parent.name for image in (*split.train, *split.test)}
    pooled, labels, _ = _pooled_vectors(extractor, split.train, "training")
    lost = sorted(names[label] for label in set(names) - set(labels.tolist()))
    if lost:
        raise DataError(f"no readable training image for the classes {', '.join(lost)}")
    settings = ClassifierSettings(
        config.classifier, config.regularisation, config.folds, config.seed
    )
    grams = (gram_matrix(column_slices(pooled)),)
    fitted = fit_classifier(TrainingImages(grams, labels, len(names)), settings)
    weights = block_weights(column_slices(pooled), fitted.coefficients, fitted.block_weights[0])
    pooled, labels, unreadable = _pooled_vectors(extractor, split.test, "test")
    scores = pooled @ weights + fitted.bias
    return evaluate_scores(
        scores, labels, [names[i] for i in range(len(names))], fitted.probability_scale, unreadable
    )


def _learn_dictionary(
    images: Sequence[LabelledImage], config: FitConfig, kind: OmpDictionary
) -> Float32Array:
    logger.info("%d training images", len(images))
    settings = SampleSettings(config.samples, config.max_side, config.seed, config.view)
    sample = sample_descriptors(images, settings)
    rng = np.random.default_rng(config.seed)
    logger.info("%d descriptors, dictionary by %s", len(sample.descriptors), kind)
    if kind == "spams":
        online = OnlineSettings(config.atoms, config.nonzeros)
        return learn_online(sample.descriptors, online, rng)
    turns = KsvdSettings(config.atoms, config.nonzeros, config.iterations)
    return learn_by_ksvd(sample.descriptors, turns, rng)


def _pooled_vectors(
    extractor: OmpExtractor, images: Sequence[LabelledImage], part: str
) -> tuple[Float32Array, npt.NDArray[np.int64], tuple[UnreadableImage, ...]]:
    """Pooled vectors (n, n_features) and labels (n,) of the images that can be read."""

    def pooled_vector(labelled: LabelledImage) -> Float32Array | UnreadableImage:
        try:
            return extractor.pooled_vector(labelled.path.read_bytes())
        except (ImageError, OSError) as error:
            return UnreadableImage(labelled.path, str(error))

    logger.info("coding %d %s images by OMP", len(images), part)
    results = list(map_ordered(pooled_vector, images, f"{part} images"))
    unreadable = tuple(result for result in results if isinstance(result, UnreadableImage))
    log_unreadable(unreadable)
    read = [i for i, result in enumerate(results) if isinstance(result, np.ndarray)]
    if not read:
        raise DataError(f"none of the {len(images)} {part} images is readable")
    labels = np.array([images[i].label for i in read], np.int64)
    return np.stack([np.asarray(results[i], np.float32) for i in read]), labels, unreadable
