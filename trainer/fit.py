"""`fit`: from a folder of images to a bundle, one named step after the other."""

import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from service import __version__
from service.engine import Bundle, Engine, FeatureExtractor, Manifest
from service.engine.classifier import LinearClassifier
from trainer.classification import Classification, learn_classification
from trainer.config import FitConfig
from trainer.cost import are_many, expected_cost
from trainer.data.dataset import Dataset, LabelledImage, Split, shortened
from trainer.data.sampling import log_unreadable
from trainer.errors import ConfigError, DataError
from trainer.evaluate import (
    JudgedImages,
    ScoredImages,
    evaluation_of,
    score_each,
    scored_images,
)
from trainer.features import FeaturePlan, LearnedFeatures, learn_features
from trainer.fit_state import FitState
from trainer.given.file import GroupsFile, read_groups
from trainer.learn.classifier import ClassifierSettings, FittedClassifier
from trainer.many_images import ManyClassification, learn_from_many
from trainer.mirroring import MirrorTrial
from trainer.parallel import one_blas_thread
from trainer.probes import make_probes
from trainer.progress import FitProgress
from trainer.publish import UNPUBLISHED
from trainer.reuse import ReusedModel
from trainer.stages import StageRecording, recording, stage
from trainer.unknown import unknown_images
from trainer.workplace import THIS_MACHINE, Workplace

__all__ = [
    "TrainedModel",
    "WorkFiles",
    "bundle_of",
    "fit",
    "scratch_folder",
    "train",
    "trainable",
    "training_split",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkFiles:
    """Where a run keeps what outlasts it or does not fit in memory.

    Below the folder `states` is what an unfinished run has learned; with `resume`, it goes on
    there. `scratch` is a folder for the descriptors.
    """

    states: Path | None = None
    scratch: Path | None = None
    resume: bool = False


@dataclass(frozen=True)
class TrainedModel:
    """A bundle that is not written yet, and the images that tell how good it is.

    `state` is to be removed when the bundle is written.
    """

    bundle: Bundle
    judged: tuple[JudgedImages, ...]
    state: FitState | None

    def with_stages(self, stages: StageRecording) -> "TrainedModel":
        """The same; its provenance tells what each stage of training took."""
        records = {name: record.to_json() for name, record in stages.until_now().items()}
        manifest = self.bundle.manifest
        manifest = replace(manifest, provenance={**manifest.provenance, "stages": records})
        return replace(self, bundle=replace(self.bundle, manifest=manifest))


def fit(
    dataset: Dataset,
    config: FitConfig,
    name: str,
    files: WorkFiles = WorkFiles(),  # noqa: B008  # frozen
    reused: ReusedModel | None = None,
) -> Bundle:
    """The bundle of `train`."""
    return train(dataset, config, name, files, reused).bundle


def train(  # noqa: PLR0913, PLR0917  # what, how, and where
    dataset: Dataset,
    config: FitConfig,
    name: str,
    files: WorkFiles = WorkFiles(),  # noqa: B008  # frozen
    reused: ReusedModel | None = None,
    workplace: Workplace = THIS_MACHINE,
) -> TrainedModel:
    """Train on `dataset` by `config`; no bundle is written, its version is not known yet.

    Of a model that is `reused`, only the classifier is learned anew.

    The same seed gives the same tensors on any number of cores. BLAS adds up in another
    order with another number of threads, so it has one here; nearly all products are small
    and computed side by side anyway.
    """
    workplace.require(config)
    plan = _plan(config, files)
    unknown = unknown_images(dataset, config, workplace)
    dataset = trainable(dataset)
    split = training_split(dataset, config)
    logger.info("%d training images of %d classes", len(split.train), len(dataset.labels))
    cost = expected_cost(
        len(split.train) + len(unknown),
        len(dataset.labels),
        config=config,
        is_reused=reused is not None,
    ).with_evaluation(len(split.test))
    workplace.require_resources(cost, files.scratch)
    with (
        one_blas_thread(),
        FitProgress(cost.stage_seconds) as progress,
        recording(progress.update) as stages,
    ):
        state = None
        if reused is None and files.states is not None:
            state = FitState.begin(files.states, split.train, config, resume=files.resume)
        run = _Run(dataset, split, unknown, plan, state, reused, workplace)
        return _train(run, name).with_stages(stages)


@dataclass(frozen=True)
class _Run:
    """What is trained on, how, where, and what there is already of it."""

    dataset: Dataset
    split: Split
    unknown: Sequence[LabelledImage]
    plan: FeaturePlan
    state: FitState | None
    reused: ReusedModel | None
    workplace: Workplace

    def features(self) -> LearnedFeatures:
        """Those of the model that is reused, those that the state holds, or new ones."""
        if self.reused is not None:
            return self.reused.features(self.split.train, self.plan.config)
        if self.state is None:
            return learn_features(self.split.train, self.plan, self.workplace.draw)
        features = self.state.features()
        if features is None:
            keeps_iterations = self.plan.given is None
            path = self.state.iterations if keeps_iterations else None
            plan = replace(self.plan, checkpoint=path)
            features = learn_features(self.split.train, plan, self.workplace.draw)
            self.state.keep(features)
        return features


def _train(run: _Run, name: str) -> TrainedModel:
    started, dataset, split, reused = time.monotonic(), run.dataset, run.split, run.reused
    config, features = run.plan.config, run.features()
    _require_all_classes(dataset, features)
    settings = ClassifierSettings(
        config.classifier,
        config.regularisation,
        config.folds,
        config.seed,
        fixed_weights=reused is not None,
        class_weight=config.class_weight,
    )
    with stage("classifier"):
        all_images = replace(features, images=(*features.images, *run.unknown))
        model = _learn_classification(all_images, len(dataset.labels), settings, run)
    extractor = model.calibrated_extractor()
    bundle = bundle_of(
        extractor,
        model.classifier(),
        Manifest(
            name=name,
            version=UNPUBLISHED,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            config=extractor.config,
            labels=dataset.labels,
        ),
    )
    engine = Engine(bundle)
    judged = _judged(engine, model.fitted, features.images, run)
    provenance = _provenance(dataset, split, features, config)
    if reused is not None:
        provenance["from_bundle"] = reused.reference
    provenance["relative_errors"] = list(features.relative_errors)
    provenance["regularisation"] = model.fitted.regularisation
    provenance["mirrored"] = model.has_copies
    if run.unknown:
        provenance["n_unknown"] = len(run.unknown)
    provenance["seconds"] = round(time.monotonic() - started, 1)
    manifest = replace(
        bundle.manifest,
        probes=make_probes(engine),
        quality={each.part: each.evaluation.to_quality() for each in judged},
        provenance=provenance,
    )
    return TrainedModel(Bundle(manifest, bundle.tensors), judged, run.state)


@contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path | None]:
    """A new folder below `parent` that is removed afterwards; None without a parent."""
    if parent is None:
        yield None
        return
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ConfigError(f"--scratch {parent} is not a writable folder")
    with tempfile.TemporaryDirectory(prefix="leafcode-", dir=parent) as folder:
        yield Path(folder)


def _plan(config: FitConfig, files: WorkFiles) -> FeaturePlan:
    """The plan of a run. Files are looked at here, so that a wrong one fails at once."""
    if config.given_groups is None:
        return FeaturePlan(config, None, None, files.scratch)
    file = GroupsFile(Path(config.given_groups), config.atoms, config.nonzeros, config.group_search)
    return FeaturePlan(config, read_groups(file), None, files.scratch)


def trainable(found: Dataset) -> Dataset:
    """The classes that have images, of which there must be two; the others are named."""
    dataset = found.without_empty_classes()
    empty = sorted(set(found.labels) - set(dataset.labels))
    if empty:
        logger.warning("left out, no images in the folder: %s", shortened(empty))
    if len(dataset.labels) < 2:
        classes = f"one class ({dataset.labels[0]})" if dataset.labels else "no class with images"
        raise DataError(
            f"{dataset.root} has {classes}, expected at least two sub-folders of images"
        )
    return dataset


def training_split(dataset: Dataset, config: FitConfig) -> Split:
    """The images to train on and those to test on; classes that cannot be tested are named."""
    counts = Counter(image.label for image in dataset.images)
    if config.train_per_class is None:
        return Split(dataset.images, ())
    for i, label in enumerate(dataset.labels):
        if counts[i] <= config.train_per_class:
            logger.warning("class %s: all %d images train, none is left to test", label, counts[i])
    return dataset.split(config.train_per_class, config.split_seed)


def _require_all_classes(dataset: Dataset, features: LearnedFeatures) -> None:
    readable = {image.label for image in features.images}
    lost = [label for i, label in enumerate(dataset.labels) if i not in readable]
    if lost:
        raise DataError(f"no readable training image for the classes {', '.join(lost)}")


def _learn_classification(
    features: LearnedFeatures,
    n_labels: int,
    settings: ClassifierSettings,
    run: _Run,
) -> Classification | ManyClassification:
    config = run.plan.config
    mirroring = config.recipe_mirroring
    if are_many(len(features.images), config):
        return learn_from_many(
            features,
            n_labels,
            settings,
            run.plan.scratch,
            mirrored=mirroring == "always",
            workplace=run.workplace,
        )
    plain = learn_classification(features, n_labels, settings, run.workplace.pool)
    if mirroring == "never":
        return plain
    trial = MirrorTrial(plain, features.images, settings)
    with stage("mirrored copies"):
        if mirroring == "auto":
            return trial.winner()
        logger.info("mirrored copies are used, as the settings say")
        return trial.mirrored()


def bundle_of(
    extractor: FeatureExtractor, classifier: LinearClassifier, manifest: Manifest
) -> Bundle:
    """All that was learned, under the names that a bundle stores it by."""
    return Bundle(
        manifest,
        {**extractor.tensors(), **classifier.tensors()},
    )


def _judged(
    engine: Engine, fitted: FittedClassifier, images: Sequence[LabelledImage], run: _Run
) -> tuple[JudgedImages, ...]:
    """What is told by folds of the training images and by images that are kept for testing."""
    untested = [engine.labels[label] for label in fitted.untested]
    if untested:
        logger.warning(
            "one training image, or near-duplicates of one, so that folds cannot test: %s",
            shortened(untested),
        )
    judged = []
    with stage("evaluation"):
        if fitted.held_out is not None:
            places, scores = fitted.held_out.places, fitted.held_out.scores
            held_out = ScoredImages(tuple(images[place] for place in places), scores)
            evaluation = evaluation_of(engine, held_out).counting_untested_as_missed()
            if fitted.rejection is not None:
                rejected, auroc = fitted.rejection.rejected, fitted.rejection.auroc
                evaluation = replace(evaluation, rejected=rejected, auroc=auroc)
            judged.append(JudgedImages("folds", held_out, evaluation))
        if run.split.test:
            results = run.workplace.each(score_each, engine, run.split.test, "test images")
            tested = scored_images(run.split.test, results)
            log_unreadable(tested.unreadable)
            judged.append(JudgedImages("test", tested, evaluation_of(engine, tested)))
    return tuple(judged)


def _provenance(
    dataset: Dataset, split: Split, features: LearnedFeatures, config: FitConfig
) -> dict[str, object]:
    return {
        "dataset": dataset.root.resolve().name,
        "n_train": len(features.images),
        "n_unreadable": len(features.unreadable),
        "n_descriptors": features.n_descriptors,
        "training_files_sha256": dataset.fingerprint(split.train),
        "settings": config.to_json(),
        "card": config.card,
        "leafcode": __version__,
    }
