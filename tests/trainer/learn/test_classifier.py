"""The classifier in the span of the images against a solver in feature space."""

import logging
import re

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from sklearn.svm import LinearSVC

from service.engine.arrays import Float32Array
from service.engine.config import ClassifierKind
from service.engine.ranking import probabilities
from trainer.learn import classifier
from trainer.learn.classifier import (
    ClassifierSettings,
    Labels,
    class_accuracies,
    fit_classifier,
    mean_class_accuracy,
)


def _clusters(n_labels: int, per_label: int, noise: float) -> tuple[Float32Array, Labels]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(n_labels), per_label)
    centres = rng.normal(size=(n_labels, 60))
    points = centres[labels] + noise * rng.normal(size=(len(labels), 60))
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32), labels


def _settings(kind: ClassifierKind = "svm", regularisation: float | None = 3) -> ClassifierSettings:
    return ClassifierSettings(kind, regularisation, folds=4, seed=0)


def test_svm_in_the_span_scores_like_the_svm_in_feature_space() -> None:
    pooled, labels = _clusters(4, 10, 0.5)
    fitted = fit_classifier(pooled, labels, 4, _settings())
    direct = LinearSVC(C=3, dual=True, tol=1e-6, max_iter=100_000, random_state=0)
    direct.fit(pooled, labels)
    found = np.stack([fitted.classifier.scores(row) for row in pooled])
    # The trainer's solver stops at a tolerance of 1e-2 on the dual's gradient.
    np.testing.assert_allclose(found, direct.decision_function(pooled), atol=0.03)


@pytest.mark.parametrize("kind", ["svm", "logistic"])
@pytest.mark.parametrize("n_labels", [2, 3, 7])
def test_separable_clusters_are_told_apart(kind: ClassifierKind, n_labels: int) -> None:
    pooled, labels = _clusters(n_labels, 8, 0.3)
    fitted = fit_classifier(pooled, labels, n_labels, _settings(kind, None))
    scores = np.stack([fitted.classifier.scores(row) for row in pooled])
    assert scores.shape == (len(labels), n_labels)
    assert (scores.argmax(axis=1) == labels).all()


def test_probability_scale_makes_held_out_probabilities_honest() -> None:
    pooled, labels = _clusters(5, 60, 2.2)
    fitted = fit_classifier(pooled[::2], labels[::2], 5, _settings())
    scores = np.stack([fitted.classifier.scores(row) for row in pooled[1::2]])
    chances = probabilities(scores, fitted.probability_scale)
    confidence = chances.max(axis=1).mean()
    accuracy = (scores.argmax(axis=1) == labels[1::2]).mean()
    # 150 test points: one standard error of the accuracy is about .04.
    assert abs(confidence - accuracy) < 0.1


def test_equal_fits_are_equal_bit_for_bit() -> None:
    # Solvers side by side in threads drew from one generator: scales from 6.788 to 6.798.
    pooled, labels = _clusters(8, 30, 1.5)
    first, *others = (
        fit_classifier(pooled, labels, 8, _settings(regularisation=None)) for _ in range(4)
    )
    assert {other.probability_scale for other in others} == {first.probability_scale}
    assert {other.fold_log_loss for other in others} == {first.fold_log_loss}


def test_folds_in_processes_give_what_they_give_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pooled, labels = _clusters(5, 12, 1.5)
    here = fit_classifier(pooled, labels, 5, _settings(regularisation=None))
    monkeypatch.setattr(classifier, "_WORTH_PROCESSES", 0)
    monkeypatch.setattr(classifier, "n_threads", lambda: 2)
    elsewhere = fit_classifier(pooled, labels, 5, _settings(regularisation=None))
    get_reusable_executor().shutdown(wait=True)
    assert elsewhere.probability_scale == here.probability_scale
    assert elsewhere.fold_log_loss == here.fold_log_loss


def _faint_clusters(contrast: float, noise: float, base: float) -> tuple[Float32Array, Labels]:
    """Three clusters around one place far from zero, or around zero if `base` is."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 20)
    deviations = rng.normal(size=(3, 60))[labels] + noise * rng.normal(size=(60, 60))
    points = base + contrast * deviations
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32), labels


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        pytest.param(_faint_clusters(1, 4, 0), 0.3, id="below the first candidates"),
        pytest.param(_faint_clusters(0.017, 2, 5), 100, id="above the first candidates"),
    ],
)
def test_regularisation_is_searched_for_until_the_best_lies_inside(
    points: tuple[Float32Array, Labels], expected: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fitted = fit_classifier(*points, 3, _settings(regularisation=None))
    figures = re.findall(r"regularisation (\S+): accuracy on folds (\S+)", caplog.text)
    accuracies = {float(candidate): float(accuracy) for candidate, accuracy in figures}
    assert fitted.regularisation == expected
    assert min(accuracies) < fitted.regularisation < max(accuracies)
    assert max(accuracies.values()) == accuracies[fitted.regularisation]


def test_best_regularisation_at_the_end_of_all_candidates_is_named_in_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(classifier, "_CANDIDATES", (1.0, 3.0, 10.0))
    fitted = fit_classifier(*_faint_clusters(1, 4, 0), 3, _settings(regularisation=None))
    assert fitted.regularisation == 1
    assert "regularisation 1 is the last candidate" in caplog.text


def test_single_image_of_a_class_is_never_held_out() -> None:
    pooled, labels = _clusters(3, 5, 0.3)
    kept = np.flatnonzero((labels != 2) | (np.arange(15) == 14))
    fitted = fit_classifier(pooled[kept], labels[kept], 3, _settings())
    assert fitted.classifier.scores(pooled[14]).argmax() == 2


def test_one_image_a_class_trains_without_folds() -> None:
    pooled, labels = _clusters(3, 1, 0.3)
    fitted = fit_classifier(pooled, labels, 3, _settings(regularisation=None))
    assert fitted.fold_accuracy is None
    assert [int(fitted.classifier.scores(row).argmax()) for row in pooled] == [0, 1, 2]


def test_identical_images_are_safe() -> None:
    pooled, labels = _clusters(2, 6, 0.3)
    pooled[:] = pooled[:1]
    fitted = fit_classifier(pooled, labels, 2, _settings())
    # One scale of a label would not be finite if one of its weights were not.
    assert np.isfinite(fitted.classifier.scales).all()


def test_mean_class_accuracy_weighs_classes_not_images() -> None:
    labels = np.array([0, 0, 0, 0, 1])
    assert mean_class_accuracy(np.array([0, 0, 0, 0, 0]), labels) == 0.5


def test_mean_class_accuracy_counts_classes_alike_and_only_those_with_images() -> None:
    labels, predicted = np.array([0, 0, 0, 2]), np.array([0, 0, 1, 2])
    np.testing.assert_allclose(class_accuracies(predicted, labels), [2 / 3, 1])
    assert mean_class_accuracy(predicted, labels) == pytest.approx(5 / 6)
