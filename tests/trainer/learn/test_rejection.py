"""The threshold of confidences, against every threshold there is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.learn.rejection import Rejection, fit_rejection, threshold_keeping

# Few values, so that there are ties.
values = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0])
many = st.lists(values, min_size=1, max_size=40)


def balanced(known: list[float], unknown: list[float], threshold: float) -> float:
    """The mean of the share that is kept of the ones and rejected of the others."""
    kept = sum(value >= threshold for value in known) / len(known)
    rejected = sum(value < threshold for value in unknown) / len(unknown)
    return (kept + rejected) / 2


def fitted(known: list[float], unknown: list[float]) -> Rejection:
    return fit_rejection(np.array(known, np.float64), np.array(unknown, np.float64))


@given(st.lists(values, min_size=1, max_size=60))
def test_the_threshold_is_the_highest_that_keeps_nineteen_of_twenty(known: list[float]) -> None:
    found = fitted(known, [])
    allowed = [v for v in known if sum(o >= v for o in known) >= 0.95 * len(known)]
    assert found.threshold == max(allowed)
    assert found.kept == sum(v >= found.threshold for v in known) / len(known) >= 0.95
    assert (found.rejected, found.auroc) == (None, None)


@given(many, many)
def test_no_threshold_that_keeps_nine_of_ten_separates_better(
    known: list[float], unknown: list[float]
) -> None:
    found = fitted(known, unknown)
    assert found.kept == sum(v >= found.threshold for v in known) / len(known)
    assert found.kept >= 0.9
    candidates = [v for v in known if sum(o < v for o in known) <= len(known) // 10]
    best = max(balanced(known, unknown, candidate) for candidate in candidates)
    assert balanced(known, unknown, found.threshold) == pytest.approx(best, abs=1e-12)


def test_a_threshold_is_in_the_middle_of_the_gap() -> None:
    found = fitted([2.0, 3.0, 4.0], [-1.0, 0.0, -2.0])
    assert found == Rejection(threshold=1.0, kept=1.0, rejected=1.0, auroc=1.0)


def test_of_equally_good_thresholds_the_lowest_is_taken() -> None:
    # With 2, as much of the ones is lost as is won of the others.
    known, unknown = [0.0, *[2.0] * 9], [1.0, *[-1.0] * 9]
    assert fitted(known, unknown).threshold == -0.5


@pytest.mark.parametrize(("count", "place"), [(1, 0), (19, 0), (20, 1), (39, 1), (40, 2), (100, 5)])
def test_a_twentieth_of_the_images_lies_below(count: int, place: int) -> None:
    confidences = np.random.default_rng(0).permutation(np.linspace(0, count - 1, count))
    assert threshold_keeping(confidences, 95) == place
