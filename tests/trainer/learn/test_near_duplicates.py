"""Near-duplicates are found, and folds that keep them together are honest."""

import numpy as np
import pytest

from service.engine.arrays import Float64Array
from trainer.learn import near_duplicates
from trainer.learn.classifier import ClassifierSettings, fit_classifier
from trainer.learn.held_out import TrainingImages
from trainer.learn.near_duplicates import near_duplicate_groups, near_duplicate_groups_of_many
from trainer.metrics import Labels

_SETTINGS = ClassifierSettings("svm", 3.0, folds=5, seed=0)


def _bursts(count: int, size: int, alike: float = 0.0) -> tuple[Float64Array, Labels]:
    """Vectors of so many different images, each some times with noise, and their numbers.

    Different images have an inner product of about `alike`, those of a burst one of about .8.
    """
    rng = np.random.default_rng(0)
    common = rng.normal(size=300)
    originals = np.sqrt(alike) * common + np.sqrt(1 - alike) * rng.normal(size=(count, 300))
    numbers = np.repeat(np.arange(count), size)
    vectors = originals[numbers] + 0.5 * rng.normal(size=(count * size, 300))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), numbers


@pytest.mark.parametrize("alike", [0.0, 0.3])
def test_bursts_are_found_however_alike_different_images_are(alike: float) -> None:
    vectors, numbers = _bursts(30, 4, alike)
    order = np.random.default_rng(1).permutation(len(vectors))
    vectors, numbers = vectors[order], numbers[order]
    groups = near_duplicate_groups(vectors @ vectors.T, numbers % 3)
    same = groups[:, np.newaxis] == groups
    np.testing.assert_array_equal(same, numbers[:, np.newaxis] == numbers)


def test_different_images_are_groups_by_themselves() -> None:
    vectors, numbers = _bursts(60, 1)
    groups = near_duplicate_groups(vectors @ vectors.T, numbers % 2)
    assert len(np.unique(groups)) == 60


def test_the_same_picture_in_two_classes_is_one_group() -> None:
    vectors, numbers = _bursts(20, 1)
    vectors[7] = vectors[4]
    groups = near_duplicate_groups(vectors @ vectors.T, numbers % 2)
    assert groups[7] == groups[4]
    assert len(np.unique(groups)) == 19


def test_a_class_of_one_image_has_a_group() -> None:
    assert near_duplicate_groups(np.ones((1, 1)), np.zeros(1, np.int64)).tolist() == [0]


def test_bursts_do_not_flatter_labels_that_mean_nothing() -> None:
    vectors, numbers = _bursts(60, 5)
    labels = np.random.default_rng(2).permutation(60)[numbers] % 2
    kernel = (vectors @ vectors.T).astype(np.float32)
    naive = fit_classifier(TrainingImages((kernel,), labels, 2), _SETTINGS)
    groups = near_duplicate_groups(kernel, labels)
    honest = fit_classifier(TrainingImages((kernel,), labels, 2, groups), _SETTINGS)
    assert naive.fold_accuracy is not None
    assert honest.fold_accuracy is not None
    assert naive.fold_accuracy > 0.95
    assert 0.3 < honest.fold_accuracy < 0.7


@pytest.mark.parametrize("block_rows", [1, 7, 1000])
def test_groups_of_many_images_are_those_of_few(
    monkeypatch: pytest.MonkeyPatch, block_rows: int
) -> None:
    monkeypatch.setattr(near_duplicates, "_BLOCK_ROWS", block_rows)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 40)) + 0.5
    labels = np.arange(60) // 2 % 4
    bursts = rng.integers(0, 20, 60)
    vectors = vectors[bursts] + 0.3 * rng.normal(size=(60, 40))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    expected = near_duplicate_groups(vectors @ vectors.T, labels)
    found = near_duplicate_groups_of_many(vectors, labels)
    assert 1 < len(np.unique(expected)) < 60
    np.testing.assert_array_equal(
        found[:, np.newaxis] == found, expected[:, np.newaxis] == expected
    )


def test_a_large_burst_among_many_images_is_one_group() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1000, 200))
    vectors[:400] = vectors[0]  # 79 800 pairs, which are not all kept
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    order = rng.permutation(1000)
    groups = near_duplicate_groups_of_many(vectors[order].astype(np.float32), order % 2)
    assert len(np.unique(groups)) == 601
    assert len(np.unique(groups[order < 400])) == 1
