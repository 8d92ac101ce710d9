"""Folds: what they may not part, which images they test, and by which classifiers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import Float32Array
from trainer.learn.classifier import ClassifierSettings, fit_classifier, image_weights
from trainer.learn.held_out import (
    UNKNOWN,
    Choice,
    Folds,
    Grams,
    TrainingImages,
    stratified_folds,
)
from trainer.learn.squared_hinge import solve_squared_hinge
from trainer.metrics import Labels

# A label and a group for each image; groups may have images of several labels.
grouped_images = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 12)), min_size=1, max_size=40
).map(lambda pairs: (np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])))
labels_of_images = st.lists(st.integers(0, 4), min_size=1, max_size=40).map(np.array)
counts = st.integers(2, 6)
seeds = st.integers(0, 3)


@given(grouped_images, counts, seeds)
def test_folds_part_no_group_and_hold_out_no_image_twice(
    images: tuple[Labels, Labels], count: int, seed: int
) -> None:
    labels, groups = images
    masks = stratified_folds(labels, count, seed, groups)
    for mask in masks:
        assert not set(groups[mask]) & set(groups[~mask])
    assert np.max(np.sum(masks, axis=0)) <= 1


@given(grouped_images, counts, seeds)
def test_no_class_is_held_out_as_a_whole(
    images: tuple[Labels, Labels], count: int, seed: int
) -> None:
    labels, groups = images
    for mask in stratified_folds(labels, count, seed, groups):
        assert set(labels[~mask]) == set(labels)


@given(labels_of_images, counts, seeds)
def test_images_without_groups_are_dealt_out_in_random_order(
    labels: Labels, count: int, seed: int
) -> None:
    rng = np.random.default_rng([seed, 1])
    fold_of = np.full(len(labels), -1)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        if len(members) > 1:
            fold_of[members] = np.arange(len(members)) % count
    for fold, mask in enumerate(stratified_folds(labels, count, seed)):
        np.testing.assert_array_equal(mask, fold_of == fold)


@given(grouped_images, counts, seeds)
def test_copies_are_held_out_with_their_originals_and_change_no_fold(
    images: tuple[Labels, Labels], count: int, seed: int
) -> None:
    labels, groups = images
    both = TrainingImages((), labels, 5, groups).with_copies(Grams(()))
    alone = stratified_folds(labels, count, seed, groups)
    together = stratified_folds(both.labels, count, seed, both.groups)
    np.testing.assert_array_equal(np.tile(alone, 2), together)


def test_large_groups_are_spread_before_small_ones() -> None:
    groups = np.array([0, 1, 2, 3, 3, 3, 4, 4, 4])
    masks = stratified_folds(np.zeros(9, np.int64), 3, 0, groups)
    assert sorted(mask.sum() for mask in masks) == [3, 3, 3]


def _images_and_copies() -> tuple[Float32Array, TrainingImages]:
    """Points of three labels, and copies of them that are no closer to their own than to others."""
    rng = np.random.default_rng(0)
    labels = np.arange(24) % 3
    points = np.vstack([np.eye(3)[labels], np.eye(3)[rng.permutation(labels)]])
    points = (points + 0.3 * rng.normal(size=points.shape)).astype(np.float32)
    images = TrainingImages((points[:24] @ points[:24].T,), labels, 3)
    return points, images.with_copies(Grams((points @ points.T,)))


def test_only_originals_are_tested_by_classifiers_of_originals_and_copies() -> None:
    points, images = _images_and_copies()
    masks = stratified_folds(images.labels, 4, 0, images.groups)
    (found,) = Folds(images, masks, "svm").held_out([Choice((1.0,), 3.0)])
    expected = []
    for mask in masks:
        kernel = points[~mask] @ points[~mask].T
        solved = solve_squared_hinge(kernel, images.labels[~mask], 3, 3.0)
        expected.append(solved.scores(points[:24][mask[:24]] @ points[~mask].T))
    np.testing.assert_allclose(found.scores, np.concatenate(expected), atol=1e-5)
    right = found.scores.argmax(axis=1) == found.labels
    assert sorted(found.places) == list(range(24))
    np.testing.assert_array_equal(found.labels, images.labels[found.places])
    assert np.isclose(found.accuracy, right.mean())  # all classes have as many images


def test_what_folds_score_depends_on_no_choice_that_was_tried_before() -> None:
    _, images = _images_and_copies()
    masks = stratified_folds(images.labels, 4, 0, images.groups)
    choices = [Choice((1.0,), 3.0), Choice((1.0,), 10.0), Choice((0.5,), 10.0)]
    together = Folds(images, masks, "svm").held_out(choices)
    for choice, found in zip(choices, together, strict=True):
        (alone,) = Folds(images, masks, "svm").held_out([choice])
        np.testing.assert_array_equal(found.scores, alone.scores)


def _images_and_unknown() -> tuple[Float32Array, TrainingImages]:
    """Points of two labels, and others that have none."""
    rng = np.random.default_rng(1)
    labels = np.array([0, 1, UNKNOWN] * 8)
    points = np.eye(3)[labels] + 0.2 * rng.normal(size=(24, 3))
    points = points.astype(np.float32)
    return points, TrainingImages((points @ points.T,), labels, 2)


@pytest.mark.parametrize("by_least_squares", [True, False])
def test_images_of_unknown_label_are_held_out_too_and_stand_apart(
    *, by_least_squares: bool
) -> None:
    _, images = _images_and_unknown()
    masks = stratified_folds(images.labels, 4, 0)
    folds = Folds(images, masks, "svm")
    score = folds.least_squares if by_least_squares else folds.held_out
    (found,) = score([Choice((1.0,), 3.0)])
    assert sorted(found.places) == np.flatnonzero(images.labels != UNKNOWN).tolist()
    assert sorted(found.unknown_places) == np.flatnonzero(images.labels == UNKNOWN).tolist()
    assert found.scores.shape == (16, 2)
    assert found.unknown_scores.shape == (8, 2)
    # Their scores are negative for both labels, because they are negatives of both.
    assert found.unknown_scores.max() < found.scores.max(axis=1).min()
    assert found.accuracy == 1.0


def test_images_of_unknown_label_are_negatives_of_every_label() -> None:
    points, images = _images_and_unknown()
    masks = stratified_folds(images.labels, 4, 0)
    (found,) = Folds(images, masks, "svm").held_out([Choice((1.0,), 3.0)])
    for mask in masks:
        kernel = points[~mask] @ points[~mask].T
        solved = solve_squared_hinge(kernel, images.labels[~mask], 2, 3.0)
        for place in np.flatnonzero(mask):
            scores = solved.scores(points[[place]] @ points[~mask].T)[0]
            known = images.labels[place] != UNKNOWN
            where = found.places if known else found.unknown_places
            rows = found.scores if known else found.unknown_scores
            np.testing.assert_allclose(rows[where == place][0], scores, atol=1e-5)


def test_images_of_unknown_label_take_no_weight_from_the_classes() -> None:
    labels = np.array([0, 0, 0, 1, UNKNOWN, UNKNOWN, UNKNOWN])
    weights = image_weights(labels, "balanced")
    assert weights is not None
    np.testing.assert_allclose(weights, [2 / 3, 2 / 3, 2 / 3, 2, 1, 1, 1])
    np.testing.assert_array_equal(weights[:4], image_weights(labels[:4], "balanced"))


def test_folds_that_test_no_class_are_left_out() -> None:
    labels = np.array([0, 1, *[UNKNOWN] * 6])
    images = TrainingImages((np.eye(8, dtype=np.float32),), labels, 2)
    fitted = fit_classifier(images, ClassifierSettings("svm", 3.0, folds=3, seed=0))
    assert fitted.held_out is None
