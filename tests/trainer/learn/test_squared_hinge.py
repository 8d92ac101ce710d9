"""The solver on a Gram matrix against liblinear's in feature space."""

import logging

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from service.engine.arrays import Float64Array
from trainer.learn import line_search, squared_hinge
from trainer.learn.least_squares import ridge_inverse
from trainer.learn.squared_hinge import FirstSteps, solve_squared_hinge
from trainer.metrics import Labels


def _images(n_labels: int, n_features: int) -> tuple[Float64Array, Labels]:
    rng = np.random.default_rng(n_labels)
    labels = np.arange(60) % n_labels
    points = 0.5 * rng.normal(size=(n_labels, n_features))[labels]
    points += rng.normal(size=(60, n_features))
    return points / np.linalg.norm(points, axis=1, keepdims=True), labels


def _liblinear(points: Float64Array, labels: Labels, regularisation: float) -> Float64Array:
    model = LinearSVC(C=regularisation, dual=False, tol=1e-9, max_iter=20_000)
    scores: Float64Array = model.fit(points, labels).decision_function(points)
    return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores


# More features than images, as pooled vectors have, and fewer, where the Gram matrix is singular.
@pytest.mark.parametrize("n_features", [200, 20])
@pytest.mark.parametrize("n_labels", [2, 10])
@pytest.mark.parametrize("regularisation", [1e-3, 1.0, 30.0, 1000.0])
def test_optimum_is_that_of_liblinear(
    n_features: int, n_labels: int, regularisation: float
) -> None:
    points, labels = _images(n_labels, n_features)
    kernel = points @ points.T
    found = solve_squared_hinge(kernel, labels, n_labels, regularisation, 1e-6)
    expected = _liblinear(points, labels, regularisation)
    np.testing.assert_allclose(found.scores(kernel), expected, atol=2e-5)


@pytest.mark.parametrize("regularisation", [1e-3, 1.0, 30.0])
def test_optimum_is_that_of_liblinear_where_equal_images_have_different_labels(
    regularisation: float,
) -> None:
    points, labels = _images(4, 30)
    points[1::2] = points[::2]
    kernel = points @ points.T
    found = solve_squared_hinge(kernel, labels, 4, regularisation, 1e-7)
    expected = _liblinear(points, labels, regularisation)
    np.testing.assert_allclose(found.scores(kernel), expected, atol=2e-5)


@pytest.mark.parametrize("regularisation", [1e-2, 1.0, 100.0])
def test_optimum_is_that_of_liblinear_where_images_weigh_differently(
    regularisation: float,
) -> None:
    points, labels = _images(4, 40)
    weights = np.random.default_rng(0).uniform(0.1, 4.0, len(labels))
    kernel = points @ points.T
    found = solve_squared_hinge(kernel, labels, 4, regularisation * weights, 1e-7)
    model = LinearSVC(C=regularisation, dual=False, tol=1e-9, max_iter=20_000)
    expected = model.fit(points, labels, sample_weight=weights).decision_function(points)
    np.testing.assert_allclose(found.scores(kernel), expected, atol=2e-5)


def test_scores_are_as_exact_as_asked_for() -> None:
    points, labels = _images(5, 200)
    kernel = points @ points.T
    expected = _liblinear(points, labels, 10.0)
    for tolerance in (1e-1, 1e-2, 1e-3):
        found = solve_squared_hinge(kernel, labels, 5, 10.0, tolerance).scores(kernel)
        assert np.abs(found - expected).max() < 3 * tolerance


def test_images_inside_their_margin_have_no_coefficient() -> None:
    points, labels = _images(3, 20)
    kernel = points @ points.T
    found = solve_squared_hinge(kernel, labels, 3, 1.0, 1e-7)
    signs = np.where(labels[:, np.newaxis] == np.arange(3), 1, -1)
    inside = signs * found.scores(kernel) > 1 + 1e-5
    assert inside.sum() > 20
    assert np.abs(found.coefficients[inside]).max() < 1e-5
    assert (signs * found.coefficients > -1e-5).all()


def test_label_without_images_has_low_scores_everywhere() -> None:
    points, labels = _images(3, 20)
    scores = solve_squared_hinge(points @ points.T, labels, 4, 1.0).scores(points @ points.T)
    assert (scores[:, 3] < scores[:, :3].max(axis=1)).all()


def test_step_along_a_line_never_raises_the_objective() -> None:
    # Newton's method alone raised it for four of these lines, and one fold in hundreds overflowed.
    raised = [seed for seed in range(4000) if _rise_along_a_random_line(seed) > 0]
    assert not raised


def _rise_along_a_random_line(seed: int) -> float:
    """How much the objective rises, as a part of itself and beyond rounding."""
    rng = np.random.default_rng(seed)
    n, ridge = int(rng.integers(1, 8)), 10 ** rng.uniform(-3, 1)
    points = rng.normal(size=(n, n)) * 10 ** rng.uniform(-3, 1)
    kernel = points @ points.T + 1
    signs = rng.choice([-1.0, 1.0], n)
    start, way = (rng.normal(size=n) * 10 ** rng.uniform(-1, 2) for _ in range(2))

    def objective(coefficients: Float64Array) -> float:
        scores = kernel @ coefficients
        loss = (np.maximum(0, 1 - signs * scores) ** 2).sum() / ridge
        return float(coefficients @ scores + loss) / 2

    scores, speeds = kernel @ start, signs * (kernel @ way)
    violations = 1 - signs * scores
    slope = start @ kernel @ way
    if slope - np.maximum(violations, 0) @ speeds / ridge > 0:
        way, slope, speeds = -way, -slope, -speeds
    line = line_search.Line(
        slope=np.array([[slope]]),
        curvature=np.array([[way @ kernel @ way]]),
        violations=violations[np.newaxis] / np.sqrt(ridge),
        speeds=speeds[np.newaxis] / np.sqrt(ridge),
    )
    length = line_search.line_minimum(line)[0, 0]
    before = objective(start)
    return objective(start + length * way) / before - 1 - 1e-9


def test_labels_that_are_not_solved_in_time_are_counted_in_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(squared_hinge, "_MOST_NEWTON_STEPS", 2)
    points, labels = _images(3, 20)
    with caplog.at_level(logging.WARNING):
        found = solve_squared_hinge(points @ points.T, labels, 3, 100.0, 1e-6)
    assert "3 labels are not solved after 2 steps" in caplog.text
    assert np.isfinite(found.coefficients).all()


def test_matrix_that_is_no_gram_matrix_is_rejected() -> None:
    with pytest.raises(ValueError, match="negative eigenvalues"):
        solve_squared_hinge(-4 * np.eye(3), np.arange(3), 3, 1.0)


def test_first_steps_are_shared_by_values_of_c_and_change_no_bit() -> None:
    points, labels = _images(5, 40)
    kernel, steps = points @ points.T, FirstSteps()
    for regularisation in (3.0, 1.0, 10.0, 30.0, 3.0):
        alone = solve_squared_hinge(kernel, labels, 5, regularisation)
        shared = solve_squared_hinge(kernel, labels, 5, regularisation, first_steps=steps)
        np.testing.assert_array_equal(shared.coefficients, alone.coefficients)
        np.testing.assert_array_equal(shared.bias, alone.bias)


def test_first_steps_of_large_c_need_the_gram_matrix_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points, labels = _images(5, 40)
    kernel, steps, inverted = points @ points.T, FirstSteps(), []

    def counted(kernel: Float64Array, ridge: Float64Array) -> Float64Array:
        inverted.append(float(ridge[0]))
        return ridge_inverse(kernel, ridge)

    monkeypatch.setattr(squared_hinge, "ridge_inverse", counted)
    for regularisation in (3.0, 10.0, 1.0, 100.0):
        solve_squared_hinge(kernel, labels, 5, regularisation, first_steps=steps)
    assert inverted == [1 / 6, 1 / 2]
