"""The classifier of Gram matrices, and what it chooses on folds of data that are understood."""

import logging
import re

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from service.engine.arrays import Float32Array, Float64Array
from service.engine.config import ClassifierKind
from service.engine.probability import probabilities
from trainer import parallel
from trainer.learn import block_search
from trainer.learn.classifier import (
    ClassifierSettings,
    FittedClassifier,
    fit_classifier,
    image_weights,
)
from trainer.learn.grams import block_weights
from trainer.learn.held_out import TrainingImages
from trainer.metrics import Labels


def _unit(points: Float32Array | Float64Array) -> Float32Array:
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True), np.float32)


def _clusters(n_labels: int, per_label: int, noise: float) -> tuple[Float32Array, Labels]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(n_labels), per_label)
    centres = rng.normal(size=(n_labels, 60))
    points = centres[labels] + noise * rng.normal(size=(len(labels), 60))
    return _unit(points), labels


def _settings(kind: ClassifierKind = "svm", regularisation: float | None = 3) -> ClassifierSettings:
    return ClassifierSettings(kind, regularisation, folds=4, seed=0)


def _fit(
    pooled: Float32Array, labels: Labels, n_labels: int, settings: ClassifierSettings
) -> FittedClassifier:
    return fit_classifier(TrainingImages((pooled @ pooled.T,), labels, n_labels), settings)


def _scores(fitted: FittedClassifier, training: Float32Array, pooled: Float32Array) -> Float32Array:
    """Scores of pooled vectors by the weights of the one block."""
    return pooled @ block_weights([training], fitted.coefficients, 1.0) + fitted.bias


def test_svm_of_a_gram_matrix_scores_like_the_svm_in_feature_space() -> None:
    pooled, labels = _clusters(4, 10, 0.5)
    fitted = _fit(pooled, labels, 4, _settings())
    direct = LinearSVC(C=3, dual=True, tol=1e-6, max_iter=100_000, random_state=0)
    direct.fit(pooled, labels)
    found = _scores(fitted, pooled, pooled)
    np.testing.assert_allclose(found, direct.decision_function(pooled), atol=0.02)


@pytest.mark.parametrize("kind", ["svm", "logistic"])
@pytest.mark.parametrize("n_labels", [2, 3, 7])
def test_separable_clusters_are_told_apart(kind: ClassifierKind, n_labels: int) -> None:
    pooled, labels = _clusters(n_labels, 8, 0.3)
    fitted = _fit(pooled, labels, n_labels, _settings(kind, None))
    scores = _scores(fitted, pooled, pooled)
    assert scores.shape == (len(labels), n_labels)
    assert (scores.argmax(axis=1) == labels).all()


def test_probability_scale_makes_held_out_probabilities_honest() -> None:
    pooled, labels = _clusters(5, 60, 2.2)
    fitted = _fit(pooled[::2], labels[::2], 5, _settings())
    scores = _scores(fitted, pooled[::2], pooled[1::2])
    chances = probabilities(scores, fitted.probability_scale)
    confidence = chances.max(axis=1).mean()
    accuracy = (scores.argmax(axis=1) == labels[1::2]).mean()
    # 150 test points: one standard error of the accuracy is about .04.
    assert abs(confidence - accuracy) < 0.1


@pytest.mark.parametrize("kind", ["svm", "logistic"])
def test_fits_are_equal_bit_for_bit_on_any_number_of_cores(
    kind: ClassifierKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    pooled, labels = _clusters(5, 12, 1.5)
    fits = []
    for cores in (1, 2, 3):
        monkeypatch.setattr(parallel, "n_threads", lambda cores=cores: cores)
        fits.append(_fit(pooled, labels, 5, _settings(kind, None)))
    assert len({fitted.probability_scale for fitted in fits}) == 1
    assert len({fitted.fold_accuracy for fitted in fits}) == 1
    assert len({fitted.coefficients.tobytes() for fitted in fits}) == 1


def _noisy_clusters() -> tuple[Float32Array, Labels]:
    """Three clusters with much noise in many dimensions, where a small C is best."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 20)
    points = rng.normal(size=(3, 60))[labels] + 4 * rng.normal(size=(60, 60))
    return _unit(points), labels


def _crowded_clusters() -> tuple[Float32Array, Labels]:
    """Ten clusters with little noise in four dimensions, where a large C is best."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 10)
    points = rng.normal(size=(10, 4))[labels] + 0.3 * rng.normal(size=(100, 4))
    return _unit(points), labels


@pytest.mark.parametrize(
    ("points", "sign"),
    [
        pytest.param(_noisy_clusters(), -1, id="below the default"),
        pytest.param(_crowded_clusters(), 1, id="above the default"),
    ],
)
def test_regularisation_is_searched_for_until_the_best_lies_inside(
    points: tuple[Float32Array, Labels], sign: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fitted = _fit(*points, int(points[1].max()) + 1, _settings(regularisation=None))
    figures = re.findall(r"regularisation (\S+): accuracy on folds (\S+)", caplog.text)
    accuracies = {float(candidate): float(accuracy) for candidate, accuracy in figures}
    best = max(accuracies, key=lambda candidate: accuracies[candidate])
    assert min(accuracies) < best < max(accuracies)
    assert 0 < sign * np.log(fitted.regularisation / 3) <= sign * np.log(best / 3)


@pytest.mark.parametrize(
    ("candidates", "is_last"), [((3.0, 10.0), True), ((1.0, 3.0, 10.0), False)]
)
def test_regularisation_at_the_end_of_all_candidates_is_named_in_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    candidates: tuple[float, ...],
    *,
    is_last: bool,
) -> None:
    monkeypatch.setitem(block_search.CANDIDATES, "svm", candidates)
    _fit(*_noisy_clusters(), 3, _settings(regularisation=None))
    assert ("regularisation 3 is the last candidate" in caplog.text) is is_last


def test_single_image_of_a_class_is_never_held_out() -> None:
    pooled, labels = _clusters(3, 5, 0.3)
    kept = np.flatnonzero((labels != 2) | (np.arange(15) == 14))
    fitted = _fit(pooled[kept], labels[kept], 3, _settings())
    assert _scores(fitted, pooled[kept], pooled[14]).argmax() == 2


def test_one_image_a_class_trains_without_folds() -> None:
    pooled, labels = _clusters(3, 1, 0.3)
    fitted = _fit(pooled, labels, 3, _settings(regularisation=None))
    assert fitted.fold_accuracy is None
    assert fitted.held_out is None
    assert _scores(fitted, pooled, pooled).argmax(axis=1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["svm", "logistic"])
def test_identical_images_are_safe(kind: ClassifierKind) -> None:
    pooled, labels = _clusters(2, 6, 0.3)
    pooled[:] = pooled[:1]
    fitted = _fit(pooled, labels, 2, _settings(kind))
    assert np.isfinite(fitted.coefficients).all()
    assert np.isfinite(fitted.bias).all()


def _blocks(noise: tuple[float, ...]) -> tuple[list[Float32Array], Labels]:
    """Blocks that tell 200 images of five labels apart by themselves, so far as noise allows."""
    rng = np.random.default_rng(1)
    labels = np.arange(200) % 5
    blocks = [
        _unit(rng.normal(size=(5, 60))[labels] + each * rng.normal(size=(200, 60)))
        for each in noise
    ]
    return blocks, labels


def _fit_blocks(
    blocks: list[Float32Array], labels: Labels, settings: ClassifierSettings
) -> FittedClassifier:
    grams = tuple(block @ block.T for block in blocks)
    return fit_classifier(TrainingImages(grams, labels, 5), settings)


def _weighted(*weights: float, fixed: bool = False) -> ClassifierSettings:
    return ClassifierSettings("svm", 3, 4, 0, weights, fixed)


def test_block_that_tells_more_than_the_first_gets_a_larger_weight() -> None:
    blocks, labels = _blocks((8.0, 3.0))
    alone = _fit_blocks(blocks[:1], labels, _weighted(1))
    fitted = _fit_blocks(blocks, labels, _weighted(1, 0.2))
    assert fitted.block_weights[0] == 1
    assert fitted.block_weights[1] > 0.4
    assert alone.fold_accuracy is not None
    assert fitted.fold_accuracy is not None
    assert fitted.fold_accuracy > alone.fold_accuracy + 0.1


def test_block_that_tells_nothing_is_dropped() -> None:
    blocks, labels = _blocks((3.0, 1e6))
    assert _fit_blocks(blocks, labels, _weighted(1, 1)).block_weights == (1, 0)


def test_weights_stay_where_no_other_wins_by_more_than_noise() -> None:
    # Both tell as much: near 1 one weight is as good as another, but without the block it is worse.
    blocks, labels = _blocks((4.5, 4.5))
    assert _fit_blocks(blocks, labels, _weighted(1, 0.8)).block_weights == (1, 0.8)


def test_fixed_weights_are_not_searched_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    blocks, labels = _blocks((3.0, 1e6))
    fitted = _fit_blocks(blocks, labels, _weighted(1, 0.7, fixed=True))
    assert fitted.block_weights == (1, 0.7)
    assert len(re.findall("accuracy on folds", caplog.text)) == 1


def test_blocks_with_fixed_weights_score_like_one_block_of_them_all() -> None:
    blocks, labels = _blocks((3.0, 4.0, 5.0))
    weights = (1.0, 0.5, 0.0)
    fitted = _fit_blocks(blocks, labels, _weighted(*weights, fixed=True))
    pooled = np.hstack([w * block for w, block in zip(weights, blocks, strict=True)])
    whole = _fit(_unit(pooled), labels, 5, _settings())
    parts = [
        weight * block @ block_weights([block], fitted.coefficients, weight)
        for weight, block in zip(weights, blocks, strict=True)
    ]
    expected = _scores(whole, _unit(pooled), _unit(pooled))
    np.testing.assert_allclose(sum(parts) + fitted.bias, expected, atol=1e-3)
    assert fitted.fold_accuracy == whole.fold_accuracy


def test_wrong_number_of_weights_is_rejected() -> None:
    blocks, labels = _blocks((3.0, 4.0))
    with pytest.raises(ValueError, match="3 weights for 2 blocks"):
        _fit_blocks(blocks, labels, _weighted(1, 1, 1))


def test_small_class_counts_as_much_as_a_large_one_unless_images_do() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [190, 10])
    points = _unit(rng.normal(size=(2, 60))[labels] + 3 * rng.normal(size=(200, 60)))
    recalls = {}
    for class_weight in ("balanced", "none"):
        weights = image_weights(labels, class_weight)
        images = TrainingImages((points @ points.T,), labels, 2, weights=weights)
        held_out = fit_classifier(images, _settings(regularisation=0.1)).held_out
        assert held_out is not None
        right = held_out.scores.argmax(axis=1) == held_out.labels
        recalls[class_weight] = right[held_out.labels == 1].mean()
    assert recalls["balanced"] > recalls["none"] + 0.3


def test_classes_of_equal_size_weigh_the_same_whatever_is_chosen() -> None:
    labels = np.arange(12) % 3
    assert image_weights(labels, "none") is None
    np.testing.assert_array_equal(image_weights(labels, "balanced"), np.ones(12))
