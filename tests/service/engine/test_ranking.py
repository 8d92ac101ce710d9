"""Probabilities and ranking of scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.engine.arrays import Float32Array
from service.engine.probability import probabilities
from service.engine.ranking import Prediction, are_known, confidences, rank
from tests import reference
from tests.reference import EPSILON
from tests.support.samples import PROPERTY, random_descriptors

scales = st.floats(1e-3, 1e3)
moderate = st.floats(-10, 10, width=32)


def score_vectors(elements: st.SearchStrategy[float]) -> st.SearchStrategy[Float32Array]:
    return hnp.arrays(np.float32, st.integers(1, 12), elements=elements)


any_scores = score_vectors(st.floats(allow_nan=False, allow_infinity=False, width=32))
moderate_scores = score_vectors(moderate)


def labels_for(scores: Float32Array) -> tuple[str, ...]:
    return tuple(f"label {number}" for number in range(len(scores)))


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


# --- known or not --------------------------------------------------------------------


BLANK, SEEN = np.array([True, False])


@PROPERTY
@given(any_scores, st.floats(-10, 10))
def test_an_image_is_known_from_the_threshold_on(scores: Float32Array, threshold: float) -> None:
    best = float(scores.max())
    assert bool(are_known(scores, SEEN, threshold)) is (best >= threshold)
    assert are_known(scores, SEEN, best)


@PROPERTY
@given(any_scores)
def test_a_blank_image_is_below_any_threshold(scores: Float32Array) -> None:
    assert not are_known(scores, BLANK, -1e308)


@pytest.mark.parametrize("blank", [True, False])
def test_all_images_are_known_without_a_threshold(*, blank: bool) -> None:
    assert are_known(np.full(2, -1e30, np.float32), blank, None)


def test_images_are_judged_row_by_row() -> None:
    scores = np.array([[0, 1], [3, 2], [5, 5], [0.5, 0.5]], np.float32)
    blank = np.array([False, False, True, False])
    assert confidences(scores, blank).tolist() == [1, 3, -np.inf, 0.5]
    assert are_known(scores, blank, 1.0).tolist() == [True, True, False, False]
    assert are_known(scores[:0], blank[:0], 1.0).shape == (0,)
