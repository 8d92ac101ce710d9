"""Accuracy of an engine on labelled images, by the metric of the paper's tables."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.engine import Engine, ImageError
from service.engine.arrays import Float32Array
from trainer.data.dataset import Dataset, LabelledImage, shortened
from trainer.data.sampling import UnreadableImage
from trainer.errors import ConfigError, DataError
from trainer.metrics import (
    Interval,
    Labels,
    calibration_error,
    class_accuracies,
    log_loss,
    mean_class_accuracy,
    mean_class_accuracy_interval,
    share_interval,
)
from trainer.parallel import map_ordered

__all__ = ["Evaluation", "Selection", "choose_test_images", "evaluate", "evaluate_scores"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """How often the best label is right: by class, their mean, and over all images.

    `class_intervals` and `interval` are where accuracies by class and their mean lie with 95 %
    confidence. `calibration_error` is how far probabilities are from that, see `trainer.metrics`.

    `untested` names the bundle's labels without a test image; the mean is without them.
    """

    class_accuracy: dict[str, float]
    class_intervals: dict[str, Interval]
    mean_class_accuracy: float
    interval: Interval
    accuracy: float
    log_loss: float
    calibration_error: float
    n_test: int
    untested: tuple[str, ...]
    unreadable: tuple[UnreadableImage, ...]

    @property
    def n_classes(self) -> int:
        """Classes that have test images."""
        return len(self.class_accuracy)

    def to_json(self) -> dict[str, object]:
        """Figures as plain JSON values."""
        return {
            "mean_class_accuracy": self.mean_class_accuracy,
            "interval": list(self.interval),
            "accuracy": self.accuracy,
            "log_loss": self.log_loss,
            "calibration_error": self.calibration_error,
            "n_test": self.n_test,
            "n_classes": self.n_classes,
            "untested": list(self.untested),
        }


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
    left_out = sorted(set(found.labels) - set(engine.labels))
    if left_out:
        logger.warning("left out, not among the bundle's labels: %s", shortened(left_out))
    dataset = found.restricted_to(engine.labels)
    if not dataset.images:
        raise DataError(f"{found.root} has no images of the bundle's {len(engine.labels)} labels")
    images = dataset.images
    if split_seed is not None:
        images = _outside_split(engine, dataset, split_seed, train_per_class)
    training = _training_images(engine, dataset)
    trained_on = None if training is None else len(training.intersection(images))
    _log_training_images(trained_on, len(images), _settings_of(engine))
    return Selection(images, trained_on)


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

    def score(image: LabelledImage) -> Float32Array | UnreadableImage:
        try:
            return engine.scores(image.path.read_bytes())
        except (ImageError, OSError) as error:
            return UnreadableImage(image.path, str(error))

    results = list(map_ordered(score, images, "images"))
    rows = [result for result in results if isinstance(result, np.ndarray)]
    if not rows:
        raise DataError(f"none of the {len(images)} test images is readable")
    labels = np.array(
        [im.label for im, r in zip(images, results, strict=True) if isinstance(r, np.ndarray)]
    )
    unreadable = tuple(r for r in results if isinstance(r, UnreadableImage))
    scale = engine.config.probability_scale
    return evaluate_scores(np.stack(rows), labels, engine.labels, scale, unreadable)


def evaluate_scores(
    scores: Float32Array,
    labels: npt.NDArray[np.int64],
    names: Sequence[str],
    probability_scale: float,
    unreadable: tuple[UnreadableImage, ...] = (),
) -> Evaluation:
    """Figures of scores (n, n_labels) for images whose true labels (n,) are known."""
    predicted = scores.argmax(axis=1)
    tested = [names[label] for label in np.unique(labels)]
    accuracies = class_accuracies(predicted, labels).tolist()
    return Evaluation(
        class_accuracy=dict(zip(tested, accuracies, strict=True)),
        class_intervals={
            names[label]: _interval_of(int(label), predicted, labels) for label in np.unique(labels)
        },
        mean_class_accuracy=mean_class_accuracy(predicted, labels),
        interval=mean_class_accuracy_interval(predicted, labels),
        accuracy=float((predicted == labels).mean()),
        log_loss=log_loss(scores, labels, probability_scale),
        calibration_error=calibration_error(scores, labels, probability_scale),
        n_test=len(labels),
        untested=tuple(name for name in names if name not in set(tested)),
        unreadable=unreadable,
    )


def _interval_of(label: int, predicted: Labels, labels: Labels) -> Interval:
    own = predicted[labels == label]
    return share_interval(int((own == label).sum()), len(own))
