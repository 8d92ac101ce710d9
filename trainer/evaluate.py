"""Accuracy of an engine on labelled images, by the metric of the paper's tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.engine import Engine, ImageError
from service.engine.arrays import Float32Array
from service.engine.classifier import probabilities
from trainer.data.dataset import LabelledImage
from trainer.data.sampling import UnreadableImage
from trainer.errors import DataError
from trainer.learn.classifier import mean_class_accuracy
from trainer.parallel import map_ordered

__all__ = ["Evaluation", "evaluate", "judge"]


@dataclass(frozen=True)
class Evaluation:
    """How often the best label is right: by class, their mean, and over all images."""

    class_accuracy: dict[str, float]
    mean_class_accuracy: float
    accuracy: float
    log_loss: float
    n_test: int
    unreadable: tuple[UnreadableImage, ...]

    @property
    def n_classes(self) -> int:
        """Classes that have test images."""
        return len(self.class_accuracy)

    def to_json(self) -> dict[str, object]:
        """Figures as plain JSON values."""
        return {
            "mean_class_accuracy": self.mean_class_accuracy,
            "accuracy": self.accuracy,
            "log_loss": self.log_loss,
            "n_test": self.n_test,
            "n_classes": self.n_classes,
        }


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
    return judge(np.stack(rows), labels, engine.labels, scale, unreadable)


def judge(
    scores: Float32Array,
    labels: npt.NDArray[np.int64],
    names: Sequence[str],
    probability_scale: float,
    unreadable: tuple[UnreadableImage, ...] = (),
) -> Evaluation:
    """Figures of scores (n, n_labels) for images whose true labels (n,) are known."""
    predicted = scores.argmax(axis=1)
    chances = probabilities(scores, probability_scale)[np.arange(len(labels)), labels]
    return Evaluation(
        class_accuracy={
            names[label]: float((predicted[labels == label] == label).mean())
            for label in np.unique(labels)
        },
        mean_class_accuracy=mean_class_accuracy(predicted, labels),
        accuracy=float((predicted == labels).mean()),
        log_loss=float(-np.log(np.maximum(chances, 1e-300)).mean()),
        n_test=len(labels),
        unreadable=unreadable,
    )
