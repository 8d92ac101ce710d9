"""What the page shows and no manifest holds: scored images, how leaves are used, a command.

A fit has scores of its training images by classifiers that did not see them. They are not in the
bundle: of the same images they are made again, of others there are the figures that it recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

from service.engine import Engine
from trainer.confusion import Confusion
from trainer.data.dataset import Dataset
from trainer.data.sampling import log_unreadable
from trainer.evaluate import JudgedImages, QualityPart, divide, evaluation_of, score_images
from trainer.judge_again import judge_on_folds
from trainer.metrics import ReliabilityBin
from trainer.page.examples import Doubts, find_doubts
from trainer.page.leaf_use import LeafUse, measure_leaf_use

__all__ = ["Findings", "JudgedPart", "Origin", "of_bundle", "of_fit"]

Origin = Literal["new", "recorded", "unknown"]
"""Whether images were surely not seen in training, figures are a manifest's, or nobody knows."""


@dataclass(frozen=True)
class JudgedPart:
    """Figures of folds or of test images, as JSON has them, and images that stand out.

    Figures that are recorded in a manifest have no images, and not always all members. `recorded`
    is the accuracy of a manifest, where images at hand gave another.
    """

    part: QualityPart
    origin: Origin
    figures: Mapping[str, Any]
    doubts: Doubts | None = None
    recorded: float | None = None

    @cached_property
    def confusion(self) -> Confusion | None:
        """The confusion matrix, if it is known."""
        return Confusion.from_json(self.figures)

    @cached_property
    def reliability(self) -> tuple[ReliabilityBin, ...]:
        """The bins of the reliability curve; none if they are not known."""
        return tuple(ReliabilityBin(**each) for each in self.figures.get("reliability", ()))


@dataclass(frozen=True)
class Findings:
    """Parts of the quality, test images before folds, and how leaves are used."""

    parts: tuple[JudgedPart, ...]
    leaf_use: LeafUse | None


def of_fit(engine: Engine, dataset: Dataset, judged: Sequence[JudgedImages]) -> Findings:
    """What a fit knows: held-out scores of its training images, and those of test images."""
    parts = {each.part: _part(engine, dataset, each, "new") for each in judged}
    return Findings(_ordered(parts), measure_leaf_use(engine, dataset.images))


def of_bundle(engine: Engine, dataset: Dataset) -> Findings:
    """What a bundle says about itself, and what the images show that it was not trained on.

    Its training images are judged on folds again.
    """
    quality: Mapping[str, Any] = engine.manifest.quality
    parts = {
        part: JudgedPart(part, "recorded", quality[part])
        for part in get_args(QualityPart)
        if part in quality
    }
    training, others = divide(engine, dataset)
    if training is not None:
        for judged in judge_on_folds(engine, training):
            accuracy = parts["folds"].figures["mean_class_accuracy"] if "folds" in parts else None
            again = _part(engine, dataset, judged, "new")
            parts["folds"] = replace(again, recorded=accuracy)
    if others.images:
        scored = score_images(engine, others.images)
        log_unreadable(scored.unreadable)
        judged = JudgedImages("test", scored, evaluation_of(engine, scored))
        parts["test"] = _part(engine, dataset, judged, "new" if training else "unknown")
    return Findings(_ordered(parts), measure_leaf_use(engine, dataset.images))


def _ordered(parts: Mapping[QualityPart, JudgedPart]) -> tuple[JudgedPart, ...]:
    order: tuple[QualityPart, ...] = ("test", "folds")
    return tuple(parts[part] for part in order if part in parts)


def _part(engine: Engine, dataset: Dataset, judged: JudgedImages, origin: Origin) -> JudgedPart:
    doubts = find_doubts(engine, dataset, judged.scored)
    return JudgedPart(judged.part, origin, judged.evaluation.to_json(), doubts)
