"""The solver over a file of pooled vectors against the one on a Gram matrix."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import Float32Array, Float64Array, Int8Array, frozen
from tests import reference
from trainer.data.vectors import VectorFile
from trainer.learn import feature_matrix, primal
from trainer.learn.feature_matrix import FeatureMatrix
from trainer.learn.kernels.coordinates import sweep_coordinates
from trainer.learn.primal import PrimalClassifier, PrimalProblem, solve_primal
from trainer.learn.squared_hinge import solve_squared_hinge
from trainer.metrics import Labels

SLICES = (slice(0, 70), slice(70, 100))
WEIGHTS = (1.0, 0.5)
N_IMAGES, N_LABELS = 90, 5


class _RecordingFile(VectorFile):
    """Remembers how many vectors were read at a time."""

    most_read = 0

    def read(self, rows: slice) -> Int8Array:
        self.most_read = max(self.most_read, rows.stop - rows.start)
        return super().read(rows)


@pytest.fixture(autouse=True)
def _in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_matrix, "CHUNK_ROWS", 16)
    monkeypatch.setattr(feature_matrix, "_TILE", 32)
    monkeypatch.setattr(primal, "_TOLERANCE", 1e-9)
    monkeypatch.setattr(primal, "_MOST_STEPS", 300)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[_RecordingFile]:
    """Vectors around the means of their labels, each block of unit length."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(N_LABELS, 100))
    written = _RecordingFile(tmp_path, SLICES)
    for label in _labels():
        vector = 0.4 * means[label] + rng.normal(size=100)
        for place in SLICES:
            vector[place] /= np.linalg.norm(vector[place])
        written.append(vector.astype(np.float32))
    yield written
    written.close()


def _labels() -> Labels:
    return np.random.default_rng(1).integers(0, N_LABELS, N_IMAGES)


def _rows(file: VectorFile) -> Float64Array:
    """The features as an array, of unit length."""
    rows = file.read(slice(0, len(file))).astype(np.float64)
    for number, (place, weight) in enumerate(zip(SLICES, WEIGHTS, strict=True)):
        rows[:, place] *= file.scales[:, number, np.newaxis] * weight / np.linalg.norm(WEIGHTS)
    return rows


def _solved(file: VectorFile, problem: PrimalProblem) -> PrimalClassifier:
    with FeatureMatrix(file, WEIGHTS) as matrix:
        return solve_primal(matrix, problem)


def _problem(regularisation: float | Float64Array = 1.0) -> PrimalProblem:
    costs = np.broadcast_to(np.asarray(regularisation, np.float64), (N_IMAGES,))
    return PrimalProblem(_labels(), N_LABELS, costs, np.zeros(N_IMAGES, np.bool_))


def _weights_of_images() -> Float64Array:
    return np.random.default_rng(2).uniform(0.1, 4.0, N_IMAGES)


@pytest.mark.parametrize("regularisation", [0.03, 1.0, 30.0])
@pytest.mark.parametrize("weights", [np.ones(N_IMAGES), _weights_of_images()])
def test_optimum_is_that_on_the_gram_matrix(
    file: VectorFile, regularisation: float, weights: Float64Array
) -> None:
    found = _solved(file, _problem(regularisation * weights))
    rows = _rows(file)
    kernel = rows @ rows.T
    expected = solve_squared_hinge(kernel, _labels(), N_LABELS, regularisation * weights, 1e-7)
    scores = rows @ found.weights + found.bias
    np.testing.assert_allclose(scores, expected.scores(kernel), atol=5e-3)


def test_images_of_no_label_are_negatives_of_all(file: VectorFile) -> None:
    labels = _labels()
    labels[labels == N_LABELS - 1] = -1
    found = _solved(file, PrimalProblem(labels, N_LABELS - 1, np.ones(90), labels > N_LABELS))
    rows = _rows(file)
    kernel = rows @ rows.T
    expected = solve_squared_hinge(kernel, labels, N_LABELS - 1, 1.0, 1e-7)
    scores = rows @ found.weights + found.bias
    np.testing.assert_allclose(scores, expected.scores(kernel), atol=5e-3)


def test_held_out_scores_are_by_a_classifier_of_the_other_images(file: VectorFile) -> None:
    held = np.arange(N_IMAGES) % 3 == 0
    problem = PrimalProblem(_labels(), N_LABELS, np.ones(N_IMAGES), held)
    found, all_of_them = _solved(file, problem), _solved(file, _problem())
    rows = _rows(file)
    others = solve_squared_hinge(rows[~held] @ rows[~held].T, _labels()[~held], N_LABELS, 1.0, 1e-7)
    expected = others.scores(rows[held] @ rows[~held].T)
    np.testing.assert_allclose(found.held_out_scores, expected, atol=2e-3)
    np.testing.assert_allclose(found.weights, all_of_them.weights, atol=2e-3)


def test_labels_in_small_groups_have_the_same_optimum(
    file: VectorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = _solved(file, _problem())
    monkeypatch.setattr(primal, "_MOST_LABELS", 2)
    monkeypatch.setattr(primal, "_LINE_LABELS", 1)
    apart = _solved(file, _problem())
    np.testing.assert_allclose(apart.weights, together.weights, atol=1e-3)
    np.testing.assert_allclose(apart.bias, together.bias, atol=1e-3)


def test_never_more_than_a_chunk_is_read(file: _RecordingFile) -> None:
    _solved(file, _problem())
    assert file.most_read == 16


def test_a_label_of_all_images_and_one_of_none_are_solved(file: VectorFile) -> None:
    problem = PrimalProblem(
        np.zeros(N_IMAGES, np.int64), 2, np.ones(N_IMAGES), np.zeros(N_IMAGES, np.bool_)
    )
    found = _solved(file, problem)
    scores = _rows(file) @ found.weights + found.bias
    assert (scores[:, 0] > 0.9).all()
    assert (scores[:, 1] < -0.9).all()


def test_the_same_seed_gives_the_same_weights(file: VectorFile) -> None:
    one, other = (_solved(file, _problem()) for _ in range(2))
    assert one.weights.tobytes() == other.weights.tobytes()


@pytest.mark.parametrize("chunk", [1, 7, 90, 1000])
@pytest.mark.parametrize("tile", [1, 33, 1000])
def test_products_do_not_depend_on_chunks(
    file: VectorFile, monkeypatch: pytest.MonkeyPatch, chunk: int, tile: int
) -> None:
    monkeypatch.setattr(feature_matrix, "CHUNK_ROWS", chunk)
    monkeypatch.setattr(feature_matrix, "_TILE", tile)
    rng = np.random.default_rng(3)
    weights: Float32Array = rng.normal(size=(101, 3)).astype(np.float32)
    coefficients: Float32Array = rng.normal(size=(N_IMAGES, 3)).astype(np.float32)
    rows = np.hstack([_rows(file), np.ones((N_IMAGES, 1))])
    with FeatureMatrix(file, WEIGHTS) as matrix:
        assert matrix.shape == rows.shape
        np.testing.assert_allclose(matrix.scores(weights), rows @ weights, atol=1e-5)
        np.testing.assert_allclose(
            matrix.transposed(coefficients), rows.T @ coefficients, atol=1e-4
        )
        for part in matrix.chunks():
            expected = rows[part.rows] @ rows[part.rows].T
            np.testing.assert_allclose(part.gram(), expected, atol=1e-5)


@given(st.integers(1, 17), st.integers(1, 3), st.integers(0, 9))
def test_a_sweep_is_that_of_the_reference(n_images: int, n_labels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_images, 6))
    gram = (rows @ rows.T).astype(np.float32)
    labels = rng.integers(-1, n_labels, n_images)
    costs = rng.choice([0.0, 0.5, 6.0], n_images).astype(np.float32)
    start = np.zeros((n_labels, n_images), np.float32)
    found, scores = start.copy(), start.copy()
    sweep_coordinates(frozen(gram), frozen(labels), frozen(costs), 2, found, scores)
    for label in range(n_labels):
        signs = np.where(labels == label, 1.0, -1.0)
        expected = np.zeros(n_images)
        for _ in range(2):
            expected = reference.coordinate_sweep(gram, signs, costs, expected)
        np.testing.assert_allclose(found[label], expected, atol=2e-4)
        np.testing.assert_allclose(scores[label], gram @ expected, atol=2e-3)
