"""Which images stand out, against slow counts."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.page.examples import doubtful_labels, worst_mistakes


def _drawn(seed: int, images: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(4, 0.4), images)
    return chances, rng.integers(0, 3, images)  # no image is of the last class


@given(st.integers(0, 1000))
def test_doubtful_labels_are_those_of_confident_learning(seed: int) -> None:
    chances, labels = _drawn(seed)
    usual = {
        k: np.mean([p[k] for p, y in zip(chances, labels, strict=True) if y == k])
        for k in set(labels.tolist())
    }
    expected = []
    for place, (row, label) in enumerate(zip(chances, labels, strict=True)):
        best = int(row.argmax())
        if best != label and best in usual and row[best] >= usual[best]:
            expected.append((row[label] - row[best], place))
    assert doubtful_labels(chances, labels) == [place for _, place in sorted(expected)]


@given(st.integers(0, 1000))
def test_worst_mistakes_are_the_surest_and_at_most_two_of_a_kind(seed: int) -> None:
    chances, labels = _drawn(seed)
    found = worst_mistakes(chances, labels)
    wrong = [place for place in range(len(labels)) if chances[place].argmax() != labels[place]]
    assert set(found) <= set(wrong)
    assert len(found) == len(set(found)) <= 12
    margins = [chances[place].max() - chances[place, labels[place]] for place in found]
    assert margins == sorted(margins, reverse=True)
    pairs = [(labels[place], chances[place].argmax()) for place in found]
    assert all(pairs.count(pair) <= 2 for pair in pairs)
    for place in set(wrong) - set(found):
        margin = chances[place].max() - chances[place, labels[place]]
        pair = (labels[place], chances[place].argmax())
        assert margin <= min(margins) or pairs.count(pair) == 2


@pytest.mark.parametrize("choose", [doubtful_labels, worst_mistakes])
def test_where_all_are_right_nothing_stands_out(
    choose: Callable[[np.ndarray, np.ndarray], list[int]],
) -> None:
    assert choose(np.eye(3), np.arange(3)) == []
