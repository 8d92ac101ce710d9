"""Figures of classifiers, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from trainer.metrics import (
    area_under_roc,
    calibration_error,
    class_accuracies,
    log_loss,
    mean_class_accuracy,
    mean_class_accuracy_interval,
    reliability,
    share_interval,
)

confidences = st.sampled_from([-np.inf, -1.5, 0.0, 0.5, 2.0])


def test_mean_class_accuracy_weighs_classes_not_images() -> None:
    labels = np.array([0, 0, 0, 0, 1])
    assert mean_class_accuracy(np.array([0, 0, 0, 0, 0]), labels) == 0.5


def test_mean_class_accuracy_counts_classes_alike_and_only_those_with_images() -> None:
    labels, predicted = np.array([0, 0, 0, 2]), np.array([0, 0, 1, 2])
    np.testing.assert_allclose(class_accuracies(predicted, labels), [2 / 3, 1])
    assert mean_class_accuracy(predicted, labels) == pytest.approx(5 / 6)


def _scores_with(top: float, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Scores of two labels, of which the first has the probability `top`."""
    return np.tile([np.log(top / (1 - top)), 0.0], (count, 1))


def test_log_loss_is_that_of_the_right_label() -> None:
    scores = _scores_with(0.8, 2)
    expected = -(np.log(0.8) + np.log(0.2)) / 2
    assert log_loss(scores, np.array([0, 1]), 1.0) == pytest.approx(expected)


def test_calibration_error_is_zero_where_the_share_of_right_labels_is_the_probability() -> None:
    scores = np.concatenate([_scores_with(0.75, 4), _scores_with(0.6, 5)])
    labels = np.array([0, 0, 0, 1, 0, 0, 0, 1, 1])
    assert calibration_error(scores, labels, 1.0) == pytest.approx(0, abs=1e-12)


def test_calibration_error_weighs_bins_by_their_images() -> None:
    # .9 where all of three are right, .6 where one of two is: (3 · .1 + 2 · .1) / 5.
    scores = np.concatenate([_scores_with(0.9, 3), _scores_with(0.6, 2)])
    assert calibration_error(scores, np.array([0, 0, 0, 0, 1]), 1.0) == pytest.approx(0.1)


def test_errors_of_one_bin_cancel_out_and_those_of_two_do_not() -> None:
    one = np.concatenate([_scores_with(0.61, 1), _scores_with(0.65, 1)])
    assert calibration_error(one, np.array([0, 1]), 1.0) == pytest.approx((0.61 + 0.65 - 1) / 2)
    two = np.concatenate([_scores_with(0.61, 1), _scores_with(0.71, 1)])
    assert calibration_error(two, np.array([0, 1]), 1.0) == pytest.approx((0.39 + 0.71) / 2)


def test_certain_labels_are_in_the_last_bin() -> None:
    scores = np.array([[1000.0, 0.0], [1000.0, 0.0]])
    assert calibration_error(scores, np.array([0, 1]), 1.0) == pytest.approx(0.5)


def test_an_interval_of_a_share_is_wilsons() -> None:
    # Of Newcombe 1998, table I: 81 of 263 and 0 of 20.
    assert share_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert share_interval(0, 20) == pytest.approx((0, 0.1611), abs=1e-4)


@pytest.mark.parametrize(("right", "count"), [(0, 1), (1, 1), (1, 2), (3, 7), (60, 60), (999, 1e4)])
def test_an_interval_of_a_share_is_that_of_scipy(right: int, count: float) -> None:
    expected = binomtest(right, int(count)).proportion_ci(method="wilson")
    assert share_interval(right, int(count)) == pytest.approx(tuple(expected), abs=1e-12)


@pytest.mark.parametrize(("lowest", "images"), [(0.3, 30), (0.9, 10), (0.5, 200)])
def test_the_mean_of_the_classes_lies_in_its_interval_as_often_as_it_says(
    lowest: float, images: int
) -> None:
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(20), images)
    hits = 0
    for _ in range(200):
        accuracies = rng.uniform(lowest, 1, 20)
        right = rng.random(len(labels)) < accuracies[labels]
        predicted = np.where(right, labels, (labels + 1) % 20)
        low, high = mean_class_accuracy_interval(predicted, labels)
        hits += low <= accuracies.mean() <= high
    assert hits >= 0.92 * 200


def test_bins_of_reliability_are_those_of_a_slow_count_and_give_the_calibration_error() -> None:
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(size=(200, 3)), rng.integers(0, 3, 200)
    bins = reliability(scores, labels, 2.0)
    expected: dict[int, list[tuple[float, bool]]] = {}
    for row, label in zip(scores, labels, strict=True):
        chances = np.exp(2.0 * row) / np.exp(2.0 * row).sum()
        place = min(int(chances.max() * 15), 14)
        expected.setdefault(place, []).append((chances.max(), chances.argmax() == label))
    assert [round(each.low * 15) for each in bins] == sorted(expected)
    for each, place in zip(bins, sorted(expected), strict=True):
        members = expected[place]
        assert (each.images, each.right) == (len(members), sum(right for _, right in members))
        assert each.confidence == pytest.approx(np.mean([top for top, _ in members]))
        assert each.low <= each.confidence <= each.high
    gaps = sum(each.images * abs(each.confidence - each.accuracy) for each in bins)
    assert calibration_error(scores, labels, 2.0) == pytest.approx(gaps / 200)


@given(st.lists(confidences, min_size=1, max_size=9), st.lists(confidences, min_size=1, max_size=9))
def test_the_area_under_the_curve_is_how_often_one_is_above_the_other(
    higher: list[float], lower: list[float]
) -> None:
    pairs = [(one > other) + (one == other) / 2 for one in higher for other in lower]
    found = area_under_roc(np.array(higher), np.array(lower))
    assert found == pytest.approx(np.mean(pairs), abs=1e-12)
