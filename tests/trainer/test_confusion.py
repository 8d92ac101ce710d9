"""The confusion matrix against a slow one, and what is said of its classes."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.confusion import ClassFigures, Confusion, Mistake
from trainer.evaluate import evaluate_scores
from trainer.metrics import share_interval

NAMES = ("apple", "<b>pear</b>", "plum", "never seen")
Places = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=40)


def _confusion(pairs: Sequence[tuple[int, int]]) -> Confusion:
    labels, predicted = np.array(pairs, np.int64).reshape(-1, 2).T
    return Confusion.of(predicted, labels, NAMES)


@given(Places)
def test_counts_are_those_of_a_matrix_filled_one_by_one(pairs: list[tuple[int, int]]) -> None:
    matrix = [[0] * len(NAMES) for _ in NAMES]
    for label, predicted in pairs:
        matrix[label][predicted] += 1
    found = _confusion(pairs)
    for place, each in enumerate(found.classes):
        own = matrix[place][place]
        column = sum(row[place] for row in matrix)
        assert each == ClassFigures(NAMES[place], sum(matrix[place]), own, column)
        assert each.recall == (own / sum(matrix[place]) if sum(matrix[place]) else None)
        assert each.precision == (own / column if column else None)
    off_diagonal = {
        (NAMES[i], NAMES[j]): matrix[i][j]
        for i in range(len(NAMES))
        for j in range(len(NAMES))
        if i != j and matrix[i][j]
    }
    assert {(each.label, each.predicted): each.images for each in found.mistakes} == off_diagonal
    counts = [each.images for each in found.mistakes]
    assert counts == sorted(counts, reverse=True)
    assert found.n_images == len(pairs)


@given(Places)
def test_a_confusion_comes_back_from_json(pairs: list[tuple[int, int]]) -> None:
    found = _confusion(pairs)
    classes = {each.label: each.to_json() for each in found.classes}
    document = {"classes": classes, "mistakes": found.mistakes_to_json()}
    assert Confusion.from_json(document) == found


def test_mistakes_that_are_left_out_are_counted() -> None:
    found = _confusion([(0, 1), (0, 1), (0, 2), (1, 0), (2, 2)])
    assert found.mistakes[0] == Mistake("apple", "<b>pear</b>", 2)
    classes = {each.label: each.counts_to_json() for each in found.classes}
    some = Confusion.from_json({"classes": classes, "mistakes": found.mistakes_to_json(1)})
    assert some is not None
    assert (some.mistakes, some.left_out) == (found.mistakes[:1], 2)
    assert Confusion.from_json({"mean_class_accuracy": 1.0}) is None


def test_shares_have_wilsons_intervals_and_classes_without_images_have_none() -> None:
    apple, pear, _, unseen = _confusion([(0, 0), (0, 0), (0, 1), (1, 1)]).classes
    assert apple.recall_interval == share_interval(2, 3)
    assert pear.precision_interval == share_interval(1, 2)
    assert (unseen.recall_interval, unseen.precision_interval) == (None, None)


def test_the_weakest_classes_come_first_and_untested_ones_are_named() -> None:
    found = _confusion([(0, 0), (1, 1), (1, 0), (2, 0)])
    assert [each.label for each in found.weakest] == ["plum", "<b>pear</b>", "apple"]
    assert found.untested == ("never seen",)


def _many_classes(count: int) -> dict[str, object]:
    labels = np.repeat(np.arange(count), 2)
    scores = np.random.default_rng(0).normal(size=(2 * count, count))
    return evaluate_scores(scores, labels, [f"class {n}" for n in range(count)], 1.0).to_quality()


def test_a_manifest_keeps_no_classes_of_very_many() -> None:
    assert {"classes", "mistakes", "reliability"} <= _many_classes(300).keys()
    assert not {"classes", "mistakes"} & _many_classes(301).keys()


def test_classes_that_no_fold_can_test_count_as_missed() -> None:
    scores = np.eye(4)[[0, 1, 1]]
    plain = evaluate_scores(scores, np.array([0, 0, 1]), NAMES, 1.0)
    counted = plain.counting_untested_as_missed()
    assert plain.mean_class_accuracy == pytest.approx(0.75)
    assert counted.mean_class_accuracy == pytest.approx(0.375)
    assert counted.interval == pytest.approx(tuple(end / 2 for end in plain.interval))
