"""Folds of the training images: what classifiers score for images that they did not see.

Weights between blocks, regularisation and the scale of probabilities are chosen by these.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array
from service.engine.config import ClassifierKind
from trainer.learn.grams import DualClassifier, weighted_kernel
from trainer.learn.least_squares import solve_least_squares
from trainer.learn.logistic import solve_logistic
from trainer.learn.squared_hinge import FirstSteps, solve_squared_hinge
from trainer.metrics import Labels, class_accuracies, log_loss
from trainer.parallel import map_ordered

__all__ = [
    "UNKNOWN",
    "Choice",
    "Folds",
    "Grams",
    "HeldOut",
    "Solvers",
    "TrainingImages",
    "stratified_folds",
]

Mask = npt.NDArray[np.bool_]
Item = TypeVar("Item")
Result = TypeVar("Result")

UNKNOWN = -1
"""The label of images that show none of the classes: negatives of each, and no class themselves."""

_NEVER_HELD_OUT = -1


class Solvers(Protocol):
    """Other processes that have the Gram matrices of some images, and solve for these."""

    def map(
        self,
        function: Callable[["Folds", Item], Result],
        folds: "Folds",
        items: Sequence[Item],
        title: str,
    ) -> Iterator[Result]:
        """The function of the folds and each item, in order."""

    def kept(self, function: Callable[["Folds", Item], Result], folds: "Folds", item: Item) -> Any:
        """A stand-in for a result that stays with the processes, for use in items of `map`."""


class Grams(NamedTuple):
    """The Gram matrix (n, n) of every block, and who has them beside this process."""

    matrices: tuple[Float32Array, ...]
    solvers: Solvers | None = None


@dataclass(frozen=True)
class TrainingImages:
    """The Gram matrix (n, n) of every block, labels (n,), some perhaps `UNKNOWN`, and their number.

    Images with the same number in `groups` (n,) are never parted by folds; without, every image
    is a group. The last `n_copies` images are copies of others: they train and are never tested.
    `weights` (n,) say how much the error of each image counts; without, all count the same.
    `solvers` solve for the folds of these images, if there are any; if not, this process does.
    """

    grams: tuple[Float32Array, ...]
    labels: Labels
    n_labels: int
    groups: Labels | None = None
    n_copies: int = 0
    weights: Float64Array | None = None
    solvers: Solvers | None = None

    def only(self, places: Labels) -> "TrainingImages":
        """Some of the images, none of them copies; their labels are numbered anew."""
        names, labels = np.unique(self.labels[places], return_inverse=True)
        grams = tuple(gram[np.ix_(places, places)] for gram in self.grams)
        groups = None if self.groups is None else self.groups[places]
        weights = None if self.weights is None else self.weights[places]
        return TrainingImages(grams, labels, len(names), groups, weights=weights)

    def with_copies(self, grams: Grams) -> "TrainingImages":
        """The images and a copy of each, in the same group; `grams` (2n, 2n) are of both."""
        groups = np.arange(len(self.labels)) if self.groups is None else self.groups
        return replace(
            self,
            grams=grams.matrices,
            solvers=grams.solvers,
            labels=np.tile(self.labels, 2),
            groups=np.tile(groups, 2),
            n_copies=len(self.labels),
            weights=None if self.weights is None else np.tile(self.weights, 2),
        )

    @cached_property
    def are_tested(self) -> Mask:
        """Which images (n,) are no copies."""
        return np.arange(len(self.labels)) < len(self.labels) - self.n_copies


@dataclass(frozen=True)
class Choice:
    """What is chosen on folds: a weight for each block, and C of the classifier."""

    weights: tuple[float, ...]
    regularisation: float


@dataclass(frozen=True)
class HeldOut:
    """Scores (n, n_labels) of images by classifiers that did not see them, true labels (n,).

    `places` (n,) are those of the images among all training images. Images of unknown label are
    apart: their scores (m, n_labels) and places (m,).
    """

    scores: Float64Array
    labels: Labels
    places: Labels
    unknown_scores: Float64Array = field(default_factory=lambda: np.empty((0, 1)))
    unknown_places: Labels = field(default_factory=lambda: np.empty(0, np.int64))

    @cached_property
    def accuracy(self) -> float:
        """The mean of all classes' accuracies, nothing for those without images here."""
        accuracies = class_accuracies(self.scores.argmax(axis=1), self.labels)
        return float(accuracies.sum() / self.scores.shape[1])

    def log_loss(self, scale: float) -> float:
        """See `trainer.metrics`."""
        return log_loss(self.scores, self.labels, scale)

    def is_beaten_by(self, other: "HeldOut") -> bool:
        """Whether the other is better by more than the standard error of the difference.

        Both are of the same images. Only those count of which one is right and the other is
        not; if both were equally good, the sum of their signs would have this standard error.
        """
        signs = other._right.astype(np.float64) - self._right  # noqa: SLF001
        shares = signs / np.bincount(self.labels)[self.labels]
        return bool(shares.sum() > np.sqrt((shares**2).sum()))

    @property
    def _right(self) -> Mask:
        return np.asarray(self.scores.argmax(axis=1) == self.labels)


@dataclass(frozen=True)
class Folds:
    """Training images, and masks (n,) of those that one classifier after the other does not see.

    Copies among them are neither seen nor tested.
    """

    images: TrainingImages
    masks: tuple[Mask, ...]
    kind: ClassifierKind
    # Those of the SVM for each kernel: a search for C goes on from where it was before. Stand-ins
    # where others solve.
    _first_steps: dict[tuple[tuple[float, ...], bytes], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def held_out(self, choices: Sequence[Choice]) -> Iterator[HeldOut]:
        """For each choice the scores of all folds, each by a classifier of the others.

        Images come in the same order for all choices.
        """
        fits = [
            (choice, mask, self._steps(choice, ~mask)) for choice in choices for mask in self.masks
        ]
        return self._held_out(self._map(Folds._score, fits, "folds"), choices)

    def least_squares(self, choices: Sequence[Choice]) -> Iterator[HeldOut]:
        """The same by least squares instead of the classifier's own kind, far sooner."""
        fits = [(choice, mask) for choice in choices for mask in self.masks]
        return self._held_out(self._map(Folds._least_squares, fits, "least squares"), choices)

    def _map(
        self, function: Callable[["Folds", Item], Result], items: Sequence[Item], title: str
    ) -> Iterator[Result]:
        if self.images.solvers is None:
            return map_ordered(partial(function, self), items, title)
        return self.images.solvers.map(function, self, items, title)

    def _held_out(
        self, found: Iterator[Float64Array], choices: Sequence[Choice]
    ) -> Iterator[HeldOut]:
        """For each choice the scores that its folds found, those of unknown label apart."""
        places = self._tested_places
        labels = self.images.labels[places]
        known = labels != UNKNOWN
        for _ in choices:
            scores = np.concatenate([next(found) for _ in self.masks])
            yield HeldOut(
                scores[known], labels[known], places[known], scores[~known], places[~known]
            )

    @cached_property
    def _tested_places(self) -> Labels:
        """The images that folds test, one fold after the other."""
        tested = self.images.are_tested
        return np.concatenate([np.flatnonzero(mask & tested) for mask in self.masks])

    def solve(self, choice: Choice) -> DualClassifier:
        """The classifier of all images that a choice gives."""
        return self._solve(choice, np.ones(len(self.images.labels), np.bool_), None)

    def _solve(self, choice: Choice, kept: Mask, steps: FirstSteps | None) -> DualClassifier:
        """The classifier of the images kept."""
        labels, n_labels = self.images.labels[kept], self.images.n_labels
        kernel = self._kernel(choice, kept, kept)
        regularisation = self._regularisation(choice)[kept]
        if self.kind == "svm":
            return solve_squared_hinge(kernel, labels, n_labels, regularisation, first_steps=steps)
        return solve_logistic(kernel, labels, n_labels, regularisation)

    def _score(self, fit: tuple[Choice, Mask, FirstSteps | None]) -> Float64Array:
        choice, held, steps = fit
        kernel = self._kernel(choice, held & self.images.are_tested, ~held)
        return self._solve(choice, ~held, steps).scores(kernel)

    def _steps(self, choice: Choice, kept: Mask) -> Any:
        """The first steps with the images kept, if they are shared with other choices."""
        if self.kind != "svm" or not FirstSteps.are_shared(self._regularisation(choice)[kept]):
            return None
        key, solvers = (choice.weights, kept.tobytes()), self.images.solvers
        if key not in self._first_steps:
            self._first_steps[key] = (
                FirstSteps()
                if solvers is None
                else solvers.kept(Folds._take_steps, self, (choice, kept))
            )
        return self._first_steps[key]

    def _take_steps(self, fit: tuple[Choice, Mask]) -> FirstSteps:
        choice, kept = fit
        kernel = self._kernel(choice, kept, kept)
        return FirstSteps.taken(kernel, self.images.labels[kept], self.images.n_labels)

    def _least_squares(self, fit: tuple[Choice, Mask]) -> Float64Array:
        choice, held = fit
        kernel = self._kernel(choice, ~held, ~held)
        labels, regularisation = self.images.labels[~held], self._regularisation(choice)[~held]
        solved = solve_least_squares(kernel, labels, self.images.n_labels, regularisation)
        return solved.scores(self._kernel(choice, held & self.images.are_tested, ~held))

    def _regularisation(self, choice: Choice) -> Float64Array:
        """C (n,) of every image."""
        weights = self.images.weights
        even = np.full(len(self.images.labels), choice.regularisation)
        return even if weights is None else even * weights

    def _kernel(self, choice: Choice, rows: Mask, columns: Mask) -> Float32Array:
        part = np.flatnonzero(rows), np.flatnonzero(columns)
        return weighted_kernel(self.images.grams, choice.weights, *part)


def stratified_folds(
    labels: Labels, count: int, seed: int, groups: Labels | None = None
) -> tuple[Mask, ...]:
    """Held-out masks that part no group, each class spread evenly.

    A group counts for the class of its first image. No class is held out as a whole: groups
    that have all of its images, such as the only one, are never held out.
    """
    rng = np.random.default_rng([seed, 1])
    groups = np.arange(len(labels)) if groups is None else groups
    _, firsts, group_of, sizes = np.unique(
        groups, return_index=True, return_inverse=True, return_counts=True
    )
    fold_of_group = np.empty(len(firsts), np.int64)
    for label in np.unique(labels[firsts]):
        members = rng.permutation(np.flatnonzero(labels[firsts] == label))
        fold_of_group[members] = _spread(sizes[members], count)
    for label in np.unique(labels):
        own = np.unique(group_of[labels == label])
        if len(np.unique(fold_of_group[own])) == 1:
            fold_of_group[own] = _NEVER_HELD_OUT
    fold_of = fold_of_group[group_of]
    return tuple(fold_of == fold for fold in range(count) if (fold_of == fold).any())


def _spread(sizes: Labels, count: int) -> Labels:
    """The fold of each group: large groups come first, each to the fold with the fewest images."""
    folds = np.empty(len(sizes), np.int64)
    filled = np.zeros(count, np.int64)
    for place in np.argsort(-sizes, kind="stable"):
        folds[place] = filled.argmin()
        filled[folds[place]] += sizes[place]
    return folds
