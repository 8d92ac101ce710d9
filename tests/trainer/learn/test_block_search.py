"""The search on folds: what is measured at once. What it chooses is in `test_classifier`."""

from collections.abc import Iterator, Sequence

import numpy as np

from trainer.learn.block_search import Search
from trainer.learn.held_out import Choice, HeldOut

_LABELS = np.arange(60) % 3


class _Measuring:
    """A choice is the better the nearer its values are to the best ones, on the same images."""

    def __init__(self, best: Choice) -> None:
        self.best = best
        self.batches: list[Sequence[Choice]] = []

    def __call__(self, choices: Sequence[Choice]) -> Iterator[HeldOut]:
        self.batches += [choices] if choices else []
        return map(self._held_out, choices)

    def _held_out(self, choice: Choice) -> HeldOut:
        values = zip(
            (*choice.weights, choice.regularisation),
            (*self.best.weights, self.best.regularisation),
            strict=True,
        )
        distance = sum(abs(np.log((value + 0.1) / (best + 0.1))) for value, best in values)
        predicted = np.where(np.arange(60) < 60 * np.exp(-distance), _LABELS, (_LABELS + 1) % 3)
        return HeldOut(np.eye(3)[predicted], _LABELS, np.arange(60))


def test_a_climb_begins_with_the_start_and_the_values_beside_it() -> None:
    measuring = _Measuring(Choice((1.0,), 100.0))
    search = Search(measuring, (1.0, 3.0, 10.0, 30.0, 100.0))
    assert search.choose_regularisation(Choice((1.0,), 3.0)).regularisation == 100
    tried = [[choice.regularisation for choice in batch] for batch in measuring.batches]
    assert tried == [[3, 1, 10], [30], [100]]


def test_a_weight_and_the_regularisation_without_its_block_are_climbed_side_by_side() -> None:
    measuring = _Measuring(Choice((1.0, 1.5), 3.0))
    search = Search(measuring, (1.0, 3.0, 10.0))
    assert search.choose_weights(Choice((1.0, 1.0), 3.0)) == Choice((1.0, 1.5), 3.0)
    _, side_by_side, *_ = measuring.batches
    assert [choice.regularisation for choice in side_by_side if not choice.weights[1]] == [3, 1, 10]
    assert len(side_by_side) == 5
