"""The tree, learned: decisions and active sets that fit each other.

The paper builds its tree before the dictionary and leaves open how to "learn the hash or
tree". Here, for every node from the bottom up, the coding errors of its descriptors on
either side are computed, and a hyperplane is fitted that predicts the side of the smaller
error, weighted by the difference. A new decision is kept only where it lowers the error of
images held out from the fit: descriptors of one image resemble each other. Then the leaves
exchange atoms and the dictionary follows, for the descriptors that they have now.
"""

import logging
from collections import deque
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array, Float64Array, Int32Array, frozen
from service.engine.coding import Coder
from service.engine.fixedpoint import Descriptors, block_scratch, is_wide
from service.engine.tree import Tree, norms_of
from trainer.learn.dictionary import residual_energies, update_by_least_squares
from trainer.learn.kernels.refine import refit_decision, walk_from
from trainer.learn.kernels.swapping import swap_atoms
from trainer.learn.somp import LeafGroups, blocks_of_leaves, nearest_populated
from trainer.parallel import map_ordered, one_blas_thread

__all__ = ["coding_errors", "refine_codes", "refine_tree", "relative_error"]

logger = logging.getLogger(__name__)

# One Newton step of the logistic regression for each, the strongest first; the others
# start from its end. At depth 10 one sweep lowered the held-out error by .0161, with
# four and then two steps for each by .0166, with three steps and two ridges by .0151.
_RIDGES: Float64Array = np.array([100.0, 10.0, 1.0, 0.1])

# One image in five decides, the others fit.
_HELD_OUT_EVERY = 5

# A hyperplane in 128 dimensions is not fitted to fewer, and hardly better by more:
# at depth 10 a sweep with 5000 at most lost .0011 of .0166.
_FEWEST_MEMBERS = 16
_MOST_FITTED = 20_000

# Codes are recomputed after an update, so that the next one sees better ones.
_DICTIONARY_UPDATES = 2

# Rows that one thread walks and codes at a time.
_ROWS = 2**16


def coding_errors(descriptors: Float32Array, leaf_ids: Int32Array, coder: Coder) -> Float32Array:
    """‖x - Wz‖² of descriptors (n, d) coded in the leaves (n,)."""
    return residual_energies(descriptors, coder.encode(descriptors, leaf_ids), coder.dictionary)


def refine_tree(
    descriptors: Float32Array, tree: Tree, coder: Coder, image_ids: Int32Array | None = None
) -> Tree:
    """One sweep over all nodes of the tree, the lowest level first.

    image_ids (n,) says which image each descriptor came from; None: each is by itself.
    """
    sweep = _Sweep(descriptors, tree, coder, image_ids)
    accepted = [sweep.refine_level(level) for level in reversed(range(tree.depth))]
    logger.info("refined %d of %d decisions", sum(accepted), tree.n_leaves - 1)
    return sweep.tree()


class _Sweep:
    """Decisions on their way from one tree to a better one."""

    def __init__(
        self,
        descriptors: Float32Array,
        tree: Tree,
        coder: Coder,
        image_ids: Int32Array | None = None,
    ) -> None:
        self.descriptors = frozen(descriptors)
        ids = np.arange(len(descriptors)) if image_ids is None else image_ids
        self.is_held_out: npt.NDArray[np.bool_] = ids % _HELD_OUT_EVERY == 0
        self.norms = frozen(norms_of(descriptors))
        self.coder = coder
        self.depth = tree.depth
        self.directions = tree.directions.copy()
        self.cuts = tree.cuts.copy()
        self.width = tree.width
        # A level's decisions change nothing above it: who passes which of its nodes is
        # known from the start, and what they cost below, from the level below.
        self.leaf_ids = tree.route(descriptors)
        self.costs = self._costs_from(self.nodes_at(self.depth))

    def tree(self) -> Tree:
        """The decisions as they are now."""
        return Tree(self.directions.copy(), self.cuts.copy(), self.width)

    def refine_level(self, level: int) -> int:
        """New decisions for the nodes of a level; how many were kept."""
        nodes, children = self.nodes_at(level), self.nodes_at(level + 1)
        siblings: Int32Array = (children - 1 ^ 1) + 1
        others = self._costs_from(siblings)
        is_left = children < siblings
        left, right = (np.where(is_left == side, self.costs, others) for side in (True, False))
        gains = left - right

        def refine(task: tuple[int, Int32Array]) -> bool:
            node, members = task
            return self._refine_node(node, members, gains)

        tasks = list(_by_node(nodes, 2**level - 1, 2 ** (level + 1) - 1))
        with one_blas_thread():  # nodes are refined side by side
            kept = sum(map_ordered(refine, tasks, f"refining level {level + 1}/{self.depth}"))
        goes_right = self.walk(nodes, slice(None), level + 1) % 2 == 1
        self.costs = np.where(goes_right, right, left)
        return kept

    def nodes_at(self, level: int) -> Int32Array:
        """The node of a level that each descriptor passes."""
        nodes: Int32Array = (self.leaf_ids + 2**self.depth >> self.depth - level) - 1
        return nodes

    def _costs_from(self, nodes: Int32Array) -> Float32Array:
        """What each descriptor costs (n,) if it starts at its node (n,)."""

        def costs(start: int) -> Float32Array:
            rows = slice(start, start + _ROWS)
            leaf_ids = self.walk(nodes, rows, self.depth)
            return coding_errors(self.descriptors[rows], leaf_ids, self.coder)

        starts = range(0, len(self.descriptors), _ROWS)
        return np.concatenate(list(map_ordered(costs, starts, "costs of the other side")))

    def walk(self, nodes: Int32Array, rows: slice, depth: int) -> Int32Array:
        """Where some rows of the descriptors end that start at their nodes (n,).

        As numbers of leaves of the tree cut off at `depth`.
        """
        n_inner = 2**depth - 1
        fixed = Descriptors.of(self.descriptors[rows]).fixed(wide=is_wide(self.directions))
        ends = np.empty(len(fixed.norms), np.int32)
        walk_from(
            fixed.directions,
            fixed.norms,
            frozen(self.directions[:n_inner]),
            frozen(self.cuts[:n_inner]),
            frozen(nodes[rows]),
            block_scratch(),
            ends,
        )
        return ends

    def _refine_node(self, node: int, members: Int32Array, gains: Float32Array) -> bool:
        is_held_out = self.is_held_out[members]
        fitted, held_out = members[~is_held_out], members[is_held_out]
        if not len(fitted) or not len(held_out):
            return False
        stride = -(-len(fitted) // _MOST_FITTED)
        current = Tree(self.directions[node : node + 1], self.cuts[node : node + 1], self.width)
        vector, threshold = current.vectors[0], current.thresholds
        if not refit_decision(
            self.descriptors,
            self.norms,
            gains,
            fitted[::stride],
            held_out,
            _RIDGES,
            vector,
            threshold,
        ):
            return False
        # Compared once more as the integers that it becomes.
        better = Tree.from_floats(vector[None], threshold, wide=current.wide)
        rows = Descriptors.of(self.descriptors[held_out])
        kept, lost = (float(gains[held_out] @ tree.route(rows)) for tree in (better, current))
        if kept <= lost:
            return False
        self.directions[node], self.cuts[node] = better.directions[0], better.cuts[0]
        return True


def _by_node(nodes: Int32Array, first: int, end: int) -> Iterator[tuple[int, Int32Array]]:
    """Nodes from `first` to `end` with their members, where there are enough of them."""
    order = np.argsort(nodes, kind="stable").astype(np.int32)
    bounds = np.searchsorted(nodes[order], np.arange(first, end + 1))
    for node in range(first, end):
        members = order[bounds[node - first] : bounds[node - first + 1]]
        if len(members) >= _FEWEST_MEMBERS:
            yield node, members


def refine_codes(
    points: LeafGroups, table: Int32Array, dictionary: Float32Array
) -> tuple[Int32Array, Float32Array, float]:
    """A better table (groups, m) and dictionary (K, d), and their relative error."""
    table = _swapped(points, table, dictionary)
    x = points.descriptors
    for _ in range(_DICTIONARY_UPDATES):
        coder = Coder.from_table(table, dictionary, wide=points.wide)
        codes = coder.encode(x, points.leaf_ids)
        dictionary = update_by_least_squares(x, codes, dictionary)
    coder = Coder.from_table(table, dictionary, wide=points.wide)
    errors = coding_errors(x, points.leaf_ids, coder)
    return table, dictionary, relative_error(x, errors)


def relative_error(descriptors: Float32Array, errors: Float32Array) -> float:
    """Σ‖x - Wz‖² / Σ‖x‖², nothing if there is nothing to code."""
    energy = float(np.einsum("ij,ij->", descriptors, descriptors, dtype=np.float64))
    return float(errors.sum(dtype=np.float64)) / energy if energy > 0 else 0.0


def _swapped(points: LeafGroups, table: Int32Array, dictionary: Float32Array) -> Int32Array:
    """Every populated group exchanges atoms for better ones, the others follow as in SOMP."""
    gram = frozen(dictionary @ dictionary.T)
    table = table.copy()

    def swap(block: Int32Array) -> None:
        for leaf in block:
            members = points.descriptors[points.members(leaf)]
            stride = -(-len(members) // _MOST_FITTED)
            swap_atoms(members[::stride] @ dictionary.T, gram, table[leaf])

    with one_blas_thread():  # groups swap side by side
        blocks = list(blocks_of_leaves(points, dictionary.shape[0]))
        deque(map_ordered(swap, blocks, "swapping atoms"), maxlen=0)
    return table[nearest_populated(points)]
