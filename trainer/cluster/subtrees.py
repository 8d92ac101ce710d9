"""A tree whose top is the driver's and whose subtrees are the workers', with their descriptors.

The top is built from a bounded sample, as on one machine. Then each part of the descriptors is
split by the leaves of the top, and every leaf's pieces come together on one worker, which grows the
subtree below it and keeps the descriptors by leaf. All that follows is computed there, by what
computes it on one machine, and only tables and sums come back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Int32Array
from service.engine.tree import Tree
from trainer.cluster.memory import give_back
from trainer.cluster.sampling import ScatteredSample
from trainer.cluster.tasks import Tasks, gathered
from trainer.errors import ConfigError
from trainer.learn.dictionary import DictionaryUpdate, NormalEquations, solve_normal_equations
from trainer.learn.points import LocalPoints, Residuals
from trainer.learn.somp import group_by_leaf, nearest_populated_of
from trainer.learn.tree import (
    TreeSettings,
    grow_tree,
    joined_tree,
    require_enough,
    top_depth,
    top_step,
)

if TYPE_CHECKING:
    from distributed import Future

__all__ = [
    "ScatteredPoints",
    "ScatteredTree",
    "Subtree",
    "grow_scattered_below",
    "grow_scattered_tree",
]

# Subtrees that are grown at a time, as many as half a million descriptors have.
_AT_A_TIME = 16


@dataclass(frozen=True)
class Subtree:
    """What is below a leaf of the top, and the descriptors that got there, by leaf."""

    tree: Tree
    points: LocalPoints


@dataclass(frozen=True)
class ScatteredTree:
    """The whole tree, how many of its levels are the top, and the subtrees on the workers.

    counts (leaves,) are the descriptors of each leaf.
    """

    tree: Tree
    top_depth: int
    subtrees: list["Future"]
    counts: npt.NDArray[np.int64]


def grow_scattered_tree(
    tasks: Tasks, sample: ScatteredSample, settings: TreeSettings
) -> ScatteredTree:
    """The tree that `build_tree` makes of all descriptors of a sample, which gives them away."""
    n = sample.n_descriptors
    require_enough(n, settings.depth)
    some, levels = sample.some(tasks, top_step(n)), top_depth(n, settings.depth)
    return grow_scattered_below(
        tasks, sample, settings, grow_tree(some, replace(settings, depth=levels))
    )


def grow_scattered_below(
    tasks: Tasks, sample: ScatteredSample, settings: TreeSettings, top: Tree
) -> ScatteredTree:
    """The tree with this top. Workers forget parts and pieces as soon as they were used.

    Some subtrees are grown at a time: their pieces come to their workers at once, beside the
    copies that others have until then.
    """
    split = tasks.each(_split, sample.parts, tasks.given(top))
    sample.parts.clear()
    below = replace(settings, depth=settings.depth - top.depth)
    pieces = gathered(tasks, split, top.n_leaves)
    split.clear()
    subtrees: list[Future] = []
    grown: list[tuple[Tree, npt.NDArray[np.int64]]] = []
    while pieces:
        some = tasks.each(_grow, pieces[:_AT_A_TIME], below)
        del pieces[:_AT_A_TIME]
        grown += tasks.results(tasks.each(_tree_and_counts, some), "subtrees")
        subtrees += some
    tree = joined_tree(top, [tree for tree, _ in grown])
    counts = np.concatenate([own for _, own in grown])
    return ScatteredTree(tree, top.depth, subtrees, counts)


@dataclass(frozen=True)
class ScatteredPoints:
    """The descriptors of a scattered tree, for Algorithm 2."""

    tasks: Tasks
    tree: ScatteredTree

    @cached_property
    def shape(self) -> tuple[int, int]:
        """How many descriptors there are, and how wide they are."""
        return int(self.tree.counts.sum()), self.tree.tree.vectors.shape[1]

    @property
    def n_leaves(self) -> int:
        """Leaves, with or without descriptors."""
        return len(self.tree.counts)

    @property
    def wide(self) -> bool:
        """Whether they are coded by wide directions."""
        return self.tree.tree.wide

    @cached_property
    def populated(self) -> Int32Array:
        """Leaves that hold at least one descriptor."""
        return np.flatnonzero(self.tree.counts).astype(np.int32)

    @cached_property
    def energy(self) -> float:
        """Σ‖x‖² of all descriptors."""
        return float(sum(self._results(_energy, "energy")))

    def rows(self, places: npt.NDArray[np.int64]) -> Float32Array:
        """The descriptors at these ascending places, which their workers send."""
        sizes = self.tree.counts.reshape(self._n_subtrees, -1).sum(axis=1)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        bounds = np.searchsorted(places, starts)
        own = [
            places[begin:end] - start
            for begin, end, start in zip(bounds, bounds[1:], starts, strict=False)
        ]
        return np.concatenate(self._results(_rows, "first atoms", own))

    def active_sets(self, dictionary: Float32Array, nonzeros: int) -> Int32Array:
        """The atoms that SOMP chooses in each leaf, a table."""
        given = self.tasks.given(dictionary)
        tables = self._results(_active_sets, "active sets", None, given, nonzeros)
        table: Int32Array = np.concatenate(tables)
        return table[nearest_populated_of(self.populated, self.n_leaves)]

    def updated_dictionary(
        self, kind: DictionaryUpdate, table: Int32Array, dictionary: Float32Array
    ) -> Float32Array:
        """Better atoms for the active sets of a table; only sums over the descriptors come here."""
        if kind != "least-squares":
            raise ConfigError(f"dictionary_update is {kind!r} on a cluster, expected least-squares")
        given = self.tasks.given(dictionary)
        sums = self._submit(_normal_equations, self._parts(table), given)
        total: NormalEquations = self.tasks.result(self.tasks.total(sums), "dictionary")
        return solve_normal_equations(total, dictionary)

    def residuals(self, table: Int32Array, dictionary: Float32Array) -> Residuals:
        """What the codes by a table leave over."""
        given = self.tasks.given(dictionary)
        found = self._results(_residuals, "coding error", self._parts(table), given)
        by_leaf = np.concatenate([each.by_leaf for each in found])
        return Residuals(by_leaf, sum(each.total for each in found))

    def missing_directions(
        self, leaves: Int32Array, table: Int32Array, dictionary: Float32Array
    ) -> Sequence[Float32Array | None]:
        """See `dictionary.missing_directions`."""
        given = self.tasks.given(dictionary)
        owners, own_leaves = np.divmod(leaves, self.n_leaves // self._n_subtrees)
        places = [np.flatnonzero(owners == owner) for owner in range(self._n_subtrees)]
        asked = [(own_leaves[own], table[own]) for own in places]
        directions: list[Float32Array | None] = [None] * len(leaves)
        found = self._results(_missing_directions, "unused atoms", asked, given)
        for own, answers in zip(places, found, strict=True):
            for place, direction in zip(own, answers, strict=True):
                directions[place] = direction
        return directions

    @property
    def _n_subtrees(self) -> int:
        return len(self.tree.subtrees)

    def _parts(self, table: Int32Array) -> list[Int32Array]:
        """The rows of a table that each subtree needs."""
        return np.split(table, self._n_subtrees)

    def _submit(
        self, function: Callable[..., Any], own: Sequence[Any] | None, *arguments: Any
    ) -> list["Future"]:
        """A task for each subtree, with what is its own and with what all get."""
        if own is None:
            return self.tasks.each(function, self.tree.subtrees, *arguments)
        same = [[argument] * len(own) for argument in arguments]
        return self.tasks.map(function, self.tree.subtrees, own, *same)

    def _results(
        self,
        function: Callable[..., Any],
        title: str,
        own: Sequence[Any] | None = None,
        *arguments: Any,
    ) -> list[Any]:
        return list(self.tasks.results(self._submit(function, own, *arguments), title))


# What workers run.


def _split(descriptors: Float32Array, top: Tree) -> list[Float32Array]:
    """Copies of the descriptors of each leaf of the top, so that each piece is freed by itself."""
    leaf_ids = top.route(descriptors)
    pieces = [descriptors[leaf_ids == leaf] for leaf in range(top.n_leaves)]
    give_back()
    return pieces


def _grow(pieces: Sequence[Float32Array], settings: TreeSettings) -> Subtree:
    descriptors = np.concatenate(pieces)
    tree = grow_tree(descriptors, settings)
    leaf_ids = tree.route(descriptors)
    groups = group_by_leaf(descriptors, leaf_ids, tree.n_leaves, wide=tree.wide)
    del descriptors
    give_back()
    return Subtree(tree, LocalPoints(groups))


def _tree_and_counts(subtree: Subtree) -> tuple[Tree, npt.NDArray[np.int64]]:
    groups = subtree.points.groups
    return subtree.tree, np.bincount(groups.leaf_ids, minlength=subtree.tree.n_leaves)


def _energy(subtree: Subtree) -> float:
    return subtree.points.energy


def _rows(subtree: Subtree, places: npt.NDArray[np.int64]) -> Float32Array:
    return subtree.points.rows(places)


def _active_sets(subtree: Subtree, dictionary: Float32Array, nonzeros: int) -> Int32Array:
    if not subtree.points.shape[0]:  # the driver takes another leaf's
        return np.zeros((subtree.points.n_leaves, nonzeros), np.int32)
    return subtree.points.active_sets(dictionary, nonzeros)


def _normal_equations(
    subtree: Subtree, table: Int32Array, dictionary: Float32Array
) -> NormalEquations:
    return subtree.points.normal_equations(table, dictionary)


def _residuals(subtree: Subtree, table: Int32Array, dictionary: Float32Array) -> Residuals:
    return subtree.points.residuals(table, dictionary)


def _missing_directions(
    subtree: Subtree, asked: tuple[Int32Array, Int32Array], dictionary: Float32Array
) -> Sequence[Float32Array | None]:
    leaves, table = asked
    return subtree.points.missing_directions(leaves, table, dictionary)
