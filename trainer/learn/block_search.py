"""The search for the weights between blocks and for the regularisation, on folds.

One value after the other is changed, and the folds' mean per-class accuracy judges. Noise must
not decide: of values that differ by no more than the standard error of their difference over the
same images, the one nearest to the start is taken, and a block is left out if it wins no more.
"""

import logging
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

from service.engine.config import ClassifierKind
from trainer.learn.held_out import Choice, HeldOut

__all__ = ["CANDIDATES", "DEFAULT_REGULARISATION", "Search"]

logger = logging.getLogger(__name__)

# C of the solver. Blocks have unit norm together, so one range suits most data sets.
DEFAULT_REGULARISATION: dict[ClassifierKind, float] = {"svm": 3.0, "logistic": 300.0}
CANDIDATES: dict[ClassifierKind, tuple[float, ...]] = {
    "svm": tuple(float(f"{digit}e{power}") for power in range(-3, 3) for digit in (1, 3)),
    "logistic": tuple(float(f"{digit}e{power}") for power in range(-3, 6) for digit in (1, 3)),
}

# A block's weights, relative to where its search starts.
_FACTORS = tuple(1.5**power for power in range(-6, 7))
_PASSES = 3

Climb = Generator[list[Choice], None, Choice]
"""Asks for choices to be tried, some at a time, and ends with the best."""


@dataclass
class Search:
    """Choices tried on folds, each once, by the method `measure` of these folds.

    `candidates` are values of C, smallest first; `level` is that of the log's lines.
    """

    measure: Callable[[Sequence[Choice]], Iterator[HeldOut]]
    candidates: tuple[float, ...]
    level: int = logging.INFO
    tried: dict[Choice, HeldOut] = field(default_factory=dict)

    def try_all(self, choices: Sequence[Choice]) -> None:
        """Measure the choices that were not tried yet."""
        new = [choice for choice in dict.fromkeys(choices) if choice not in self.tried]
        for choice, held_out in zip(new, self.measure(new), strict=True):
            self.tried[choice] = held_out
            logger.log(self.level, "%s: accuracy on folds %.4f", _text(choice), held_out.accuracy)

    def choose_weights(self, start: Choice) -> Choice:
        """Weights of all blocks but the first, in a few passes, until none changes any more.

        Every pass has the regularisation that suits the weights so far.
        """
        best = start
        for _ in range(_PASSES):
            before = best = self.choose_regularisation(best)
            for block in range(1, len(start.weights)):
                best = self._choose_weight(best, block, start.weights[block])
            if best == before:
                break
        return best

    def choose_regularisation(self, start: Choice) -> Choice:
        """The regularisation with these weights."""
        (best,) = self._climbed(self._climb_regularisation(start))
        return best

    def _choose_weight(self, choice: Choice, block: int, start: float) -> Choice:
        """Zero unless the block wins something, because without it an image costs less.

        Without the block another regularisation may be better: noise in a Gram matrix does what
        more regularisation does, and would seem to win.
        """

        def weighted(weight: float) -> Choice:
            weights = choice.weights
            return replace(choice, weights=(*weights[:block], weight, *weights[block + 1 :]))

        if start == 0:
            return choice
        without, chosen = self._climbed(
            self._climb_regularisation(weighted(0.0)),
            self._climb([start * factor for factor in _FACTORS], start, weighted),
        )
        return chosen if self.tried[without].is_beaten_by(self.tried[chosen]) else without

    def _climbed(self, *climbs: Climb) -> list[Choice]:
        """The ends of climbs that go on side by side, so that more can be measured at once."""
        ends: dict[Climb, Choice] = {}
        while len(ends) < len(climbs):
            asked: list[Choice] = []
            for climb in climbs:
                try:
                    asked += next(climb) if climb not in ends else []
                except StopIteration as end:
                    ends[climb] = end.value
            self.try_all(asked)
        return [ends[climb] for climb in climbs]

    def _climb_regularisation(self, start: Choice) -> Climb:
        return self._climb(
            self.candidates,
            start.regularisation,
            lambda candidate: replace(start, regularisation=candidate),
        )

    def _climb(
        self, ladder: Sequence[float], start: float, choice_of: Callable[[float], Choice]
    ) -> Climb:
        """The choice nearest to the start that the best one tried does not beat.

        The start and the values beside it are tried, and then the next one beyond as long as the
        best is the smallest or the largest of those tried. Ties go to the value nearest to the
        start.
        """
        reach: set[int] = set()
        best, nearest = start, [start]
        while _around(ladder.index(best), ladder) - reach:
            reach |= _around(ladder.index(best), ladder)
            values = [ladder[place] for place in reach]
            nearest = sorted(values, key=lambda value: abs(math.log(value / start)))
            yield [choice_of(value) for value in nearest]
            best = max(nearest, key=lambda value: self.tried[choice_of(value)].accuracy)
        winner = self.tried[choice_of(best)]
        choices = map(choice_of, nearest)
        return next(c for c in choices if not self.tried[c].is_beaten_by(winner))


def _around(place: int, ladder: Sequence[float]) -> set[int]:
    return set(range(max(place - 1, 0), min(place + 2, len(ladder))))


def _text(choice: Choice) -> str:
    if len(choice.weights) == 1:
        return f"regularisation {choice.regularisation:g}"
    weights = ", ".join(f"{weight:.3g}" for weight in choice.weights)
    return f"weights {weights}, regularisation {choice.regularisation:g}"
