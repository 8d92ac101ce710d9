"""Scores, probabilities and ranking of the linear classifier."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.engine import Prediction
from service.engine.arrays import Float32Array, Float64Array
from service.engine.classifier import LinearClassifier, probabilities, rank
from tests import reference
from tests.reference import EPSILON
from tests.support.samples import PROPERTY, random_descriptors

seeds = st.integers(0, 2**32 - 1)
scales = st.floats(1e-3, 1e3)
moderate = st.floats(-10, 10, width=32)


def score_vectors(elements: st.SearchStrategy[float]) -> st.SearchStrategy[Float32Array]:
    return hnp.arrays(np.float32, st.integers(1, 12), elements=elements)


any_scores = score_vectors(st.floats(allow_nan=False, allow_infinity=False, width=32))
moderate_scores = score_vectors(moderate)


def labels_for(scores: Float32Array) -> tuple[str, ...]:
    return tuple(f"label {number}" for number in range(len(scores)))


# Around the width of a SIMD register, and around the rows that are asked for ahead.
feature_counts = st.sampled_from([0, 1, 15, 16, 17, 300])
label_counts = st.sampled_from([1, 2, 3, 15, 16, 17, 101])


def some_zeros(rng: np.random.Generator, n_features: int) -> Float32Array:
    pooled: Float32Array = random_descriptors(rng, 1, n_features)[0]
    pooled[rng.random(n_features) < rng.random()] = 0
    return pooled


def random_classifier(rng: np.random.Generator, n_features: int, n_labels: int) -> LinearClassifier:
    """Any integers; scales and biases of very different sizes."""
    weights = rng.integers(-(2**15), 2**15, (n_features, n_labels), np.int16)
    scales, bias = 10.0 ** rng.uniform(-8, 0, (2, n_labels))
    return LinearClassifier(weights, scales.astype(np.float32), bias.astype(np.float32))


def rounding(classifier: LinearClassifier, pooled: Float32Array) -> Float64Array:
    """What float32 may cost: each product, each sum, the scale and the bias round once."""
    weights = np.abs(classifier.weights * classifier.scales.astype(np.float64))
    size = reference.scores(np.abs(pooled), weights, np.abs(classifier.bias))
    return (len(pooled) + 3) * EPSILON * size


@PROPERTY
@given(seeds, feature_counts, label_counts)
def test_scores_equal_the_oracle(seed: int, n_features: int, n_labels: int) -> None:
    rng = np.random.default_rng(seed)
    pooled = some_zeros(rng, n_features)
    classifier = random_classifier(rng, n_features, n_labels)
    weights = classifier.weights * classifier.scales.astype(np.float64)
    expected = reference.scores(pooled, weights, classifier.bias)
    difference = np.abs(classifier.scores(pooled) - expected)
    assert (difference <= rounding(classifier, pooled)).all()


@PROPERTY
@given(seeds, feature_counts, label_counts)
def test_rounding_weights_moves_a_score_by_half_a_scale_at_most(
    seed: int, n_features: int, n_labels: int
) -> None:
    rng = np.random.default_rng(seed)
    pooled = some_zeros(rng, n_features)
    sizes = 10.0 ** rng.uniform(-8, 8, n_labels)
    weights = (random_descriptors(rng, n_features, n_labels) * sizes).astype(np.float32)
    classifier = LinearClassifier.from_floats(weights, np.zeros(n_labels, np.float32))
    bound = np.abs(pooled).sum(dtype=np.float64) * classifier.scales.astype(np.float64) / 2
    difference = np.abs(classifier.scores(pooled) - reference.scores(pooled, weights, 0))
    assert (difference <= bound + rounding(classifier, pooled)).all()


def test_the_largest_weight_of_a_label_is_the_largest_integer() -> None:
    weights = np.array([[0.5, -3], [-1, 2], [0.25, 1e-6]], np.float32)
    classifier = LinearClassifier.from_floats(weights, np.zeros(2, np.float32))
    # 32767/2 and 32767/4 are rounded to nearest, a half to the even neighbour.
    expected = [[16384, -32767], [-32767, 21845], [8192, 0]]
    np.testing.assert_array_equal(classifier.weights, expected)
    np.testing.assert_array_equal(classifier.scales, np.array([1, 3], np.float32) / 32767)


def test_a_label_without_weights_scores_its_bias() -> None:
    weights = np.array([[0, 1], [0, 2]], np.float32)
    classifier = LinearClassifier.from_floats(weights, np.array([-0.5, 0], np.float32))
    assert classifier.scales[0] == 0
    assert not classifier.weights[:, 0].any()
    assert classifier.scores(np.ones(2, np.float32))[0] == -0.5


@pytest.mark.parametrize("size", [1e-45, 5e-45, 1e-42, 4e-41, 7e-41])
def test_weights_too_small_for_a_scale_do_not_change_their_sign(size: float) -> None:
    weights = np.array([[size, -size], [-size, size]], np.float32)
    integers = LinearClassifier.from_floats(weights, np.zeros(2, np.float32)).weights
    assert (integers * np.sign(weights) >= 0).all()


def test_a_zero_vector_scores_the_bias() -> None:
    bias = np.array([1.5, -2.5], np.float32)
    classifier = LinearClassifier.from_floats(np.ones((4, 2), np.float32), bias)
    np.testing.assert_array_equal(classifier.scores(np.zeros(4, np.float32)), bias)


def test_scoring_leaves_the_bias_alone() -> None:
    bias = np.zeros(2, np.float32)
    classifier = LinearClassifier.from_floats(np.ones((4, 2), np.float32), bias)
    classifier.scores(np.ones(4, np.float32))
    assert not bias.any()


@PROPERTY
@given(any_scores, scales)
def test_probabilities_of_any_scores_sum_to_one(scores: Float32Array, scale: float) -> None:
    chances = probabilities(scores, scale)
    assert ((chances >= 0) & (chances <= 1)).all()
    assert chances.sum() == pytest.approx(1, abs=1e-12)


@PROPERTY
@given(moderate_scores, st.floats(1e-3, 10))
def test_probabilities_equal_the_textbook_formula(scores: Float32Array, scale: float) -> None:
    # All in float64; the exponential multiplies the error of its argument, at most 200.
    np.testing.assert_allclose(
        probabilities(scores, scale), reference.softmax(scores, scale), rtol=1e-12
    )


@PROPERTY
@given(any_scores, scales)
def test_a_higher_score_is_never_less_probable(scores: Float32Array, scale: float) -> None:
    chances = probabilities(scores, scale)
    assert (np.diff(chances[np.argsort(scores, kind="stable")]) >= 0).all()


@PROPERTY
@given(moderate_scores, st.floats(1e-3, 10))
def test_an_offset_of_all_scores_changes_no_probability(scores: Float32Array, scale: float) -> None:
    shifted = probabilities(scores.astype(np.float64) + 8, scale)
    np.testing.assert_allclose(shifted, probabilities(scores, scale), rtol=1e-12)


def test_probabilities_of_many_rows_are_taken_row_by_row() -> None:
    scores = random_descriptors(np.random.default_rng(0), 5, 4)
    rows = np.stack([probabilities(row, 2.0) for row in scores])
    np.testing.assert_array_equal(probabilities(scores, 2.0), rows)


@PROPERTY
@given(any_scores, scales)
def test_all_ranked_probabilities_sum_to_one(scores: Float32Array, scale: float) -> None:
    predictions = rank(scores, labels_for(scores), scale, len(scores))
    assert sum(prediction.probability for prediction in predictions) == pytest.approx(1, abs=1e-12)


@PROPERTY
@given(score_vectors(st.sampled_from([-1.0, 0.0, 0.5])))
def test_rank_is_best_first_with_ties_to_the_lowest_index(scores: Float32Array) -> None:
    labels = labels_for(scores)
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    found = [prediction.label for prediction in rank(scores, labels, 1.0, len(scores))]
    assert found == [labels[index] for index in order]


@pytest.mark.parametrize(("top_k", "expected"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (999, 3)])
def test_rank_answers_at_most_all_labels(top_k: int, expected: int) -> None:
    scores = np.array([0.1, 0.3, 0.2], np.float32)
    assert len(rank(scores, ("a", "b", "c"), 1.0, top_k)) == expected


def test_a_shorter_ranking_keeps_the_probabilities_over_all_labels() -> None:
    scores = np.log(np.array([1, 2, 1], np.float32))
    (best,) = rank(scores, ("a", "b", "c"), 1.0, 1)
    assert best.label == "b"
    # The logarithms are rounded to float32.
    assert best.probability == pytest.approx(0.5, abs=EPSILON)


def test_a_prediction_holds_plain_python_values() -> None:
    (best,) = rank(np.zeros(1, np.float32), ("a",), 1.0, 1)
    assert best == Prediction("a", 1.0)
    assert type(best.probability) is float


def test_the_arrays_of_a_classifier_are_read_only() -> None:
    classifier = LinearClassifier.from_floats(np.ones((4, 2), np.float32), np.zeros(2, np.float32))
    assert not classifier.weights.flags.writeable
    assert not classifier.scales.flags.writeable
    assert not classifier.bias.flags.writeable
