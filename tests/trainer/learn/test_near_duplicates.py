"""Near-duplicates are found, and folds that keep them together are honest."""

import numpy as np
import pytest

from service.engine.arrays import Float64Array
from trainer.learn.classifier import ClassifierSettings, fit_classifier
from trainer.learn.held_out import TrainingImages
from trainer.learn.near_duplicates import near_duplicate_groups
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
