"""Accuracy of an engine on labelled images, by the metric of the paper's tables."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from service.engine import Engine, ImageError, ScoredImage
from service.engine.arrays import BoolArray, Float32Array, Float64Array
from service.engine.ranking import confidences
from trainer.confusion import Confusion
from trainer.data.dataset import Dataset, LabelledImage, shortened
from trainer.data.sampling import UnreadableImage
from trainer.errors import ConfigError, DataError
from trainer.learn.rejection import kept_share
from trainer.metrics import (
    Interval,
    Labels,
    ReliabilityBin,
    expected_calibration_error,
    log_loss,
    mean_class_accuracy,
    mean_class_accuracy_interval,
    reliability,
)
from trainer.parallel import map_ordered
from trainer.vectors import Pooling

__all__ = [
    "Evaluation",
    "JudgedImages",
    "QualityPart",
    "ScoredImages",
    "Selection",
    "choose_test_images",
    "divide",
    "evaluate",
    "evaluate_scores",
    "evaluation_of",
    "score_each",
    "score_images",
    "scored_images",
]

QualityPart = Literal["folds", "test"]
"""The members of a manifest's quality."""

logger = logging.getLogger(__name__)

# What a manifest keeps of many classes, which services read and list: about 100 kB at most.
_MOST_CLASSES_KEPT = 300
_MOST_MISTAKES_KEPT = 1000


@dataclass(frozen=True)
class ScoredImages:
    """Images and their scores (n, n_labels); those that could not be read have none.

    `are_blank` (n,) says which show nothing but one colour, if that is known.
    """

    images: tuple[LabelledImage, ...]
    scores: Float32Array | Float64Array
    unreadable: tuple[UnreadableImage, ...] = ()
    are_blank: BoolArray | Literal[False] = False

    @cached_property
    def labels(self) -> Labels:
        """The true labels (n,)."""
        return np.array([image.label for image in self.images], np.int64)

    @cached_property
    def confidences(self) -> Float64Array:
        """What a threshold judges by whether the images (n,) are known."""
        return confidences(self.scores, self.are_blank)


@dataclass(frozen=True)
class Evaluation:
    """How often the best label is right: by class, their mean, and over all images.

    `interval` is where the mean lies with 95 % confidence. `reliability` sets probabilities
    beside the share of right labels, see `trainer.metrics`. The mean is of the classes that have
    test images; `untested` names the others. `kept` is the share of images that the model's
    threshold takes for known; `rejected` is the share of images of none of the classes that it
    does not, and `auroc` how often one of these has a lower best score than one of the others.
    """

    confusion: Confusion
    mean_class_accuracy: float
    interval: Interval
    accuracy: float
    log_loss: float
    reliability: tuple[ReliabilityBin, ...]
    unreadable: tuple[UnreadableImage, ...] = ()
    kept: float | None = None
    rejected: float | None = None
    auroc: float | None = None

    @property
    def calibration_error(self) -> float:
        """How far probabilities are from the share of right labels."""
        return expected_calibration_error(self.reliability)

    @property
    def n_test(self) -> int:
        """Test images that could be read."""
        return self.confusion.n_images

    @property
    def n_classes(self) -> int:
        """Classes that have test images."""
        return len(self.confusion.tested)

    @property
    def untested(self) -> tuple[str, ...]:
        """The bundle's labels without a test image."""
        return self.confusion.untested

    def counting_untested_as_missed(self) -> "Evaluation":
        """The same, its mean over all classes: nothing for those without a test image."""
        share = self.n_classes / len(self.confusion.classes)
        low, high = self.interval
        return replace(
            self,
            mean_class_accuracy=self.mean_class_accuracy * share,
            interval=(low * share, high * share),
        )

    def to_json(self) -> dict[str, object]:
        """All figures as plain JSON values."""
        return {
            **self._figures_to_json(),
            "classes": {each.label: each.to_json() for each in self.confusion.classes},
            "mistakes": self.confusion.mistakes_to_json(),
            "reliability": [asdict(each) for each in self.reliability],
        }

    def to_quality(self) -> dict[str, object]:
        """What a manifest keeps: all figures of few classes, the most frequent mistakes of many."""
        quality = {
            **self._figures_to_json(),
            "reliability": [asdict(each) for each in self.reliability],
        }
        if len(self.confusion.classes) <= _MOST_CLASSES_KEPT:
            quality["classes"] = {
                each.label: each.counts_to_json() for each in self.confusion.classes
            }
            quality["mistakes"] = self.confusion.mistakes_to_json(_MOST_MISTAKES_KEPT)
        return quality

    def _figures_to_json(self) -> dict[str, object]:
        known = {"kept": self.kept, "rejected": self.rejected, "auroc": self.auroc}
        return {
            "mean_class_accuracy": self.mean_class_accuracy,
            "interval": list(self.interval),
            "accuracy": self.accuracy,
            "log_loss": self.log_loss,
            "calibration_error": self.calibration_error,
            "n_test": self.n_test,
            "n_classes": self.n_classes,
            "untested": list(self.untested),
            **{name: figure for name, figure in known.items() if figure is not None},
        }


@dataclass(frozen=True)
class JudgedImages:
    """Scores of images by classifiers that did not learn from them, and what these tell.

    `folds` are of the training images, each by a classifier of the other folds; `test` images are
    of the bundle's own classifier.
    """

    part: QualityPart
    scored: ScoredImages
    evaluation: Evaluation


@dataclass(frozen=True)
class Selection:
    """Images to test on, and how many of them the bundle was trained on; None if unknown."""

    images: tuple[LabelledImage, ...]
    trained_on: int | None


def choose_test_images(
    engine: Engine, found: Dataset, split_seed: int | None, train_per_class: int | None
) -> Selection:
    """All images of the bundle's labels, or those outside the training part of a split.

    `train_per_class` None: as many as the bundle was trained on.
    """
    dataset = _known_classes(engine, found)
    images = dataset.images
    if split_seed is not None:
        images = _outside_split(engine, dataset, split_seed, train_per_class)
    training = _training_images(engine, dataset)
    trained_on = None if training is None else len(training.intersection(images))
    _log_training_images(trained_on, len(images), _settings_of(engine))
    return Selection(images, trained_on)


def divide(engine: Engine, found: Dataset) -> tuple[Dataset | None, Dataset]:
    """Images of the bundle's labels: those that it was trained on, and all others.

    If that cannot be told, the first are None and the others are all.
    """
    dataset = _known_classes(engine, found)
    training = _training_images(engine, dataset)
    if training is None:
        _log_training_images(None, len(dataset.images), {})
        return None, dataset
    seen = tuple(image for image in dataset.images if image in training)
    new = tuple(image for image in dataset.images if image not in training)
    return replace(dataset, images=seen), replace(dataset, images=new)


def _known_classes(engine: Engine, found: Dataset) -> Dataset:
    """The images of the bundle's labels; other classes are named."""
    left_out = sorted(set(found.labels) - set(engine.labels))
    if left_out:
        logger.warning("left out, not among the bundle's labels: %s", shortened(left_out))
    dataset = found.restricted_to(engine.labels)
    if not dataset.images:
        raise DataError(f"{found.root} has no images of the bundle's {len(engine.labels)} labels")
    return dataset


def _outside_split(
    engine: Engine, dataset: Dataset, split_seed: int, train_per_class: int | None
) -> tuple[LabelledImage, ...]:
    count = train_per_class or _settings_of(engine).get("train_per_class")
    if not isinstance(count, int) or count < 1:
        raise ConfigError(
            "the bundle was not trained on a split, so --split-seed needs --train-per-class"
        )
    images = dataset.split(count, split_seed).test
    if not images:
        raise DataError(f"{dataset.root} has no images outside the training part of the split")
    return images


def _training_images(engine: Engine, dataset: Dataset) -> frozenset[LabelledImage] | None:
    """Which images of the folder the bundle was trained on, by the fingerprint of their names.

    None where neither all of them nor those of the recorded split have that fingerprint.
    """
    settings = _settings_of(engine)
    count, seed = settings.get("train_per_class"), settings.get("split_seed")
    candidates = [dataset.images]
    if isinstance(count, int) and isinstance(seed, int):
        candidates.append(dataset.split(count, seed).train)
    recorded = engine.manifest.provenance.get("training_files_sha256")
    matching = (images for images in candidates if dataset.fingerprint(images) == recorded)
    return next((frozenset(images) for images in matching), None)


def _log_training_images(
    trained_on: int | None, count: int, settings: Mapping[str, object]
) -> None:
    if trained_on is None:
        logger.warning(
            "the bundle was trained on other files than these, or on a part of them that "
            "cannot be told: some images may be its training images"
        )
    elif trained_on:
        logger.warning(
            "the bundle was trained on %d of these %d images: it does worse on new ones%s",
            trained_on,
            count,
            f"; --split-seed {settings['split_seed']} leaves the training images out"
            if settings.get("train_per_class")
            else "",
        )
    else:
        logger.info("the training images left out are exactly those of the bundle")


def _settings_of(engine: Engine) -> dict[str, object]:
    settings = engine.manifest.provenance.get("settings")
    return settings if isinstance(settings, dict) else {}


def evaluate(engine: Engine, images: Sequence[LabelledImage]) -> Evaluation:
    """Classify every image from its bytes, as the service does."""
    return evaluation_of(engine, score_images(engine, images))


def evaluation_of(engine: Engine, scored: ScoredImages) -> Evaluation:
    """Figures of images that the engine has scored."""
    scale, threshold = engine.config.probability_scale, engine.config.known_threshold
    figures = evaluate_scores(scored.scores, scored.labels, engine.labels, scale, scored.unreadable)
    kept = None if threshold is None else kept_share(scored.confidences, threshold)
    return replace(figures, kept=kept)


def score_images(
    engine: Engine, images: Sequence[LabelledImage], what: str = "test images"
) -> ScoredImages:
    """The scores of every image that can be read, from its bytes, as in the service."""
    return scored_images(images, score_each(engine, images), what)


def score_each(
    engine: Engine, images: Sequence[LabelledImage]
) -> list[ScoredImage | UnreadableImage]:
    """What each image scores, or why it has no scores."""
    pooling = Pooling(engine, len(images))

    def score(image: LabelledImage) -> ScoredImage | UnreadableImage:
        try:
            data = image.path.read_bytes()
            scores = engine.classifier.scores(pooling.weighted_vector(data))
            return ScoredImage(scores, pooling.is_blank(data))
        except (ImageError, OSError) as error:
            return UnreadableImage(image.path, str(error))

    return list(map_ordered(score, images, "images"))


def scored_images(
    images: Sequence[LabelledImage],
    results: Sequence[ScoredImage | UnreadableImage],
    what: str = "test images",
) -> ScoredImages:
    """What the images scored, apart from those that have no scores."""
    together = list(zip(images, results, strict=True))
    found = [(image, each) for image, each in together if isinstance(each, ScoredImage)]
    if not found:
        raise DataError(f"none of the {len(images)} {what} is readable")
    return ScoredImages(
        tuple(image for image, _ in found),
        np.stack([each.scores for _, each in found]),
        tuple(each for each in results if isinstance(each, UnreadableImage)),
        np.array([each.is_blank for _, each in found]),
    )


def evaluate_scores(
    scores: Float32Array | Float64Array,
    labels: Labels,
    names: Sequence[str],
    probability_scale: float,
    unreadable: tuple[UnreadableImage, ...] = (),
) -> Evaluation:
    """Figures of scores (n, n_labels) for images whose true labels (n,) are known."""
    predicted = scores.argmax(axis=1)
    return Evaluation(
        Confusion.of(predicted, labels, names),
        mean_class_accuracy(predicted, labels),
        mean_class_accuracy_interval(predicted, labels),
        accuracy=float((predicted == labels).mean()),
        log_loss=log_loss(scores, labels, probability_scale),
        reliability=reliability(scores, labels, probability_scale),
        unreadable=unreadable,
    )
