"""Least squares on a Gram matrix against the normal equations of the features."""

import numpy as np
import pytest

from service.engine.arrays import Float64Array
from trainer.learn.held_out import Choice, Folds, Grams, TrainingImages, stratified_folds
from trainer.learn.least_squares import ridges, solve_least_squares, targets

_LABELS = np.arange(40) % 4


def _points(n_features: int) -> Float64Array:
    rng = np.random.default_rng(n_features)
    points = rng.normal(size=(4, n_features))[_LABELS] + 2 * rng.normal(size=(40, n_features))
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True), np.float64)


def _ridge_scores(
    points: Float64Array, held: Float64Array, signs: Float64Array, ridge: Float64Array
) -> Float64Array:
    """Weights and bias by the normal equations in the space of the features; scores of `held`."""
    features = np.hstack([points, np.ones((len(points), 1))])
    weighted = features / ridge[:, np.newaxis]
    normal = features.T @ weighted + np.eye(features.shape[1])
    weights = np.linalg.solve(normal, weighted.T @ signs.T)
    scores: Float64Array = np.hstack([held, np.ones((len(held), 1))]) @ weights
    return scores


@pytest.mark.parametrize("n_features", [8, 200])
@pytest.mark.parametrize("regularisation", [1e-2, 1.0, 100.0])
def test_scores_are_those_of_the_features(n_features: int, regularisation: float) -> None:
    points, signs = _points(n_features), targets(_LABELS, 4)
    each = np.random.default_rng(0).uniform(0.2, 3, 40) * regularisation
    held = np.arange(40) % 5 == 0
    kept, ridge = ~held, ridges(each, 40)
    kernel = points @ points.T
    solved = solve_least_squares(kernel[np.ix_(kept, kept)], _LABELS[kept], 4, each[kept])
    expected = _ridge_scores(points[kept], points[held], signs[:, kept], ridge[kept])
    np.testing.assert_allclose(solved.scores(kernel[np.ix_(held, kept)]), expected, atol=1e-8)


def test_what_is_no_gram_matrix_is_rejected() -> None:
    with pytest.raises(ValueError, match="negative eigenvalues"):
        solve_least_squares(-4 * np.eye(3), np.arange(3), 3, 1.0)


def test_folds_test_the_same_images_by_least_squares_as_by_the_classifier() -> None:
    points = _points(50).astype(np.float32)
    images = TrainingImages((points @ points.T,), _LABELS, 4).with_copies(
        Grams((np.tile(points @ points.T, (2, 2)),))
    )
    masks = stratified_folds(images.labels, 4, 0, images.groups)
    folds = Folds(images, masks, "svm")
    (fast,), (slow,) = (
        list(measure([Choice((1.0,), 3.0)])) for measure in (folds.least_squares, folds.held_out)
    )
    np.testing.assert_array_equal(fast.places, slow.places)
    np.testing.assert_array_equal(fast.labels, slow.labels)
    assert fast.scores.shape == slow.scores.shape
    assert (fast.scores.argmax(axis=1) == slow.scores.argmax(axis=1)).mean() > 0.8
