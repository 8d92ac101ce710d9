"""Pooled vectors on workers, in memory and in files, against those of one machine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.engine import Engine
from service.engine.config import CodesConfig, EngineConfig, ResidualsConfig, ViewConfig
from service.examples import shapes
from tests.support.samples import random_bundle
from trainer.classification import Classification, learn_classification
from trainer.cluster import shards, vectors
from trainer.cluster.tasks import Tasks
from trainer.cluster.vectors import ScatteredVectors
from trainer.cluster.workplace import ClusterWorkplace
from trainer.data.dataset import LabelledImage, scan
from trainer.errors import ConfigError, DataError
from trainer.features import LearnedFeatures
from trainer.learn import feature_matrix
from trainer.learn.classifier import ClassifierSettings, folds_of
from trainer.learn.held_out import Choice, Grams, TrainingImages
from trainer.learn.squared_hinge import FirstSteps
from trainer.many_images import learn_from_many
from trainer.metrics import Labels
from trainer.mirroring import MirrorTrial
from trainer.training_vectors import LocalVectors, Pool

CONFIG = EngineConfig(
    views=(ViewConfig(3, step=4), ViewConfig(2, "colour", step=4, reduction=2)),
    blocks=(CodesConfig(20, 3), ResidualsConfig((1, 0), 5, (2, 1), weight=0.4, view=1)),
    max_side=60,
)
ENGINE = Engine(random_bundle(CONFIG))
SETTINGS = ClassifierSettings("svm", None, folds=3, seed=0)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[LabelledImage, ...]:
    return scan(shapes.write_dataset(tmp_path_factory.mktemp("vectors") / "drawn")).images[::2]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_IMAGES", 7)
    monkeypatch.setattr(vectors, "_STRIP", 100)
    for module in (feature_matrix, shards):
        monkeypatch.setattr(module, "CHUNK_ROWS", 8)


@pytest.fixture
def both(tasks: Tasks, images: tuple[LabelledImage, ...]) -> list[Any]:
    return [ScatteredVectors.pooled(tasks, ENGINE, images), LocalVectors.pooled(ENGINE, images)]


def _assert_same_grams(found: Grams, expected: Grams) -> None:
    for one, other in zip(found.matrices, expected.matrices, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_inner_products_are_those_of_one_machine(both: list[Any]) -> None:
    found, expected = both
    _assert_same_grams(found.grams(), expected.grams())
    _assert_same_grams(found.grams_with_copies(), expected.grams_with_copies())
    places = np.array([1, 4, 20])
    _assert_same_grams(found.grams_with_copies(places), expected.grams_with_copies(places))


@pytest.mark.parametrize("copies", [1, 2])
def test_weights_are_those_of_one_machine(both: list[Any], copies: int) -> None:
    if copies == 2:
        both[1].grams_with_copies()
    coefficients = (
        np.random.default_rng(0).normal(size=(copies * len(both[1].images), 4)).astype(np.float32)
    )
    found, expected = (own.block_weights(coefficients, [1.0, 0.4]) for own in both)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def _classified(images: tuple[LabelledImage, ...], pool: Pool) -> Classification:
    learned = LearnedFeatures(ENGINE, images, (), 0, ())
    plain = learn_classification(learned, 4, SETTINGS, pool)
    return MirrorTrial(plain, images, SETTINGS).mirrored()


def test_classifier_with_copies_is_that_of_one_machine(
    threads: Any, images: tuple[LabelledImage, ...]
) -> None:
    found, expected = (
        _classified(images, pool) for pool in (ClusterWorkplace(threads).pool, LocalVectors.pooled)
    )
    assert found.extractor.config == expected.extractor.config
    assert found.fitted.regularisation == expected.fitted.regularisation
    assert found.fitted.fold_accuracy == expected.fitted.fold_accuracy
    np.testing.assert_allclose(found.fitted.bias, expected.fitted.bias, atol=1e-3)
    tensors = found.classifier().tensors(), expected.classifier().tensors()
    for name, tensor in tensors[1].items():
        assert np.abs(tensors[0][name].astype(np.float64) - tensor).max() <= 1, name


def _training(grams: Grams, labels: Labels) -> TrainingImages:
    return TrainingImages(grams.matrices, labels, 4, solvers=grams.solvers)


def test_workers_take_the_first_steps_of_a_fold_once_for_all_large_c(
    both: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[None] = []
    take = FirstSteps.taken

    def taking(*arguments: Any) -> FirstSteps:
        taken.append(None)
        return take(*arguments)

    monkeypatch.setattr(FirstSteps, "taken", taking)
    labels = np.array([image.label for image in both[1].images])
    choices = [Choice((1.0, 0.4), c) for c in (3.0, 30.0, 0.1)]
    found, expected = (
        list(folds_of(_training(own.grams(), labels), SETTINGS).held_out(choices)) for own in both
    )
    assert len(taken) == SETTINGS.folds
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-3)


def test_many_images_are_classified_as_on_one_machine(
    threads: Any, images: tuple[LabelledImage, ...], tmp_path: Path
) -> None:
    learned = LearnedFeatures(ENGINE, images, (), 0, ())
    workplace = ClusterWorkplace(threads)
    found = learn_from_many(learned, 4, SETTINGS, tmp_path, mirrored=True, workplace=workplace)
    expected = learn_from_many(learned, 4, SETTINGS, tmp_path, mirrored=True)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-4)
    assert found.fitted.fold_accuracy == expected.fitted.fold_accuracy
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_cut_short_is_named(tmp_path: Path) -> None:
    files = shards.ShardFiles(tmp_path, (slice(0, 5),), range(1), np.ones((3, 1), np.float32))
    (tmp_path / "000000.vectors").write_bytes(bytes(14))
    with pytest.raises(DataError, match=r"000000\.vectors has 14 bytes, expected 15"):
        files.read(slice(0, 3))


def test_many_images_need_a_folder_that_workers_share(threads: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no --scratch: expected a folder that all workers"):
        ClusterWorkplace(threads).require_folder(None)
    ClusterWorkplace(threads, is_local=True).require_folder(None)
    ClusterWorkplace(threads).require_folder(tmp_path)
