"""`fit`: from a folder of images to a bundle, one named step after the other."""

import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from service.engine import Bundle, Engine, FeatureExtractor, Manifest
from service.engine.classifier import LinearClassifier
from trainer.classification import Classification, learn_classification
from trainer.config import FitConfig, Mirroring
from trainer.data.dataset import Dataset, Split, shortened
from trainer.data.sampling import log_unreadable
from trainer.errors import ConfigError, DataError
from trainer.evaluate import evaluate
from trainer.features import FeaturePlan, LearnedFeatures, learn_features
from trainer.given.file import GroupsFile, read_groups
from trainer.learn.classifier import ClassifierSettings, FittedClassifier
from trainer.mirroring import MirrorTrial
from trainer.parallel import one_blas_thread
from trainer.probes import make_probes
from trainer.publish import UNPUBLISHED
from trainer.reuse import ReusedModel

__all__ = [
    "WorkFiles",
    "bundle_of",
    "fit",
    "scratch_folder",
    "trainable",
    "training_split",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkFiles:
    """Where a run keeps what outlasts it or does not fit in memory.

    `checkpoint` is a file with the state of dictionary learning after every iteration; if
    it exists, learning goes on there. `scratch` is a folder for the descriptors.
    """

    checkpoint: Path | None = None
    scratch: Path | None = None


def fit(
    dataset: Dataset,
    config: FitConfig,
    name: str,
    files: WorkFiles = WorkFiles(),  # noqa: B008  # frozen
    reused: ReusedModel | None = None,
) -> Bundle:
    """Train on `dataset` by `config`; no bundle is written, its version is not known yet.

    Of a model that is `reused`, only the classifier is learned anew.

    The same seed gives the same tensors on any number of cores. BLAS adds up in another
    order with another number of threads, so it has one here; nearly all products are small
    and computed side by side anyway.
    """
    with one_blas_thread():
        return _fit(dataset, config, name, files, reused)


def _fit(
    dataset: Dataset, config: FitConfig, name: str, files: WorkFiles, reused: ReusedModel | None
) -> Bundle:
    started = time.monotonic()
    plan = _plan(config, files)
    dataset = trainable(dataset)
    split = training_split(dataset, config)
    logger.info("%d training images of %d classes", len(split.train), len(dataset.labels))
    if reused is None:
        features = learn_features(split.train, plan)
    else:
        features = reused.features(split.train, config)
    _require_all_classes(dataset, features)
    settings = ClassifierSettings(
        config.classifier,
        config.regularisation,
        config.folds,
        config.seed,
        fixed_weights=reused is not None,
        class_weight=config.class_weight,
    )
    model = _learn_classification(features, len(dataset.labels), settings, config.recipe_mirroring)
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
    quality = _quality(engine, model.fitted, split)
    provenance = _provenance(dataset, split, features, config)
    if reused is not None:
        provenance["from_bundle"] = reused.reference
    provenance["relative_errors"] = list(features.relative_errors)
    provenance["regularisation"] = model.fitted.regularisation
    provenance["mirrored"] = model.has_copies
    provenance["seconds"] = round(time.monotonic() - started, 1)
    manifest = replace(
        bundle.manifest, probes=make_probes(engine), quality=quality, provenance=provenance
    )
    return Bundle(manifest, bundle.tensors)


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
    if files.checkpoint is not None:
        _check_checkpoint(files.checkpoint)
    if config.given_groups is None:
        return FeaturePlan(config, None, files.checkpoint, files.scratch)
    if files.checkpoint is not None:
        raise ConfigError("a checkpoint beside given groups, expected none: it is for learned ones")
    file = GroupsFile(Path(config.given_groups), config.atoms, config.nonzeros, config.group_search)
    return FeaturePlan(config, read_groups(file), None, files.scratch)


def _check_checkpoint(path: Path) -> None:
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"--checkpoint {path}: {path.parent} is not a writable folder")
    if path.is_dir():
        raise ConfigError(f"--checkpoint {path} is a folder, expected a file or a new name")


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
    features: LearnedFeatures, n_labels: int, settings: ClassifierSettings, mirroring: Mirroring
) -> Classification:
    plain = learn_classification(features, n_labels, settings)
    if mirroring == "never":
        return plain
    trial = MirrorTrial(plain, features.images, settings)
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


def _quality(engine: Engine, fitted: FittedClassifier, split: Split) -> dict[str, object]:
    quality: dict[str, object] = {}
    untested = [engine.labels[label] for label in fitted.untested]
    if untested:
        logger.warning(
            "one training image, or near-duplicates of one, so that folds cannot test: %s",
            shortened(untested),
        )
    if fitted.fold_accuracy is not None:
        quality["folds"] = {
            "mean_class_accuracy": fitted.fold_accuracy,
            "log_loss": fitted.fold_log_loss,
            "calibration_error": fitted.fold_calibration_error,
            "untested": untested,
        }
    if split.test:
        evaluation = evaluate(engine, split.test)
        log_unreadable(evaluation.unreadable)
        quality["test"] = evaluation.to_json()
    return quality


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
    }
