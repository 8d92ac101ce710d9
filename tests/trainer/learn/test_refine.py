"""Refined trees: kernels against the plain way, and errors that only fall."""

import numpy as np
import pytest

from service.engine.arrays import Float32Array, frozen
from service.engine.coding import Coder
from service.engine.tree import Tree
from tests import reference
from trainer.learn import refine
from trainer.learn.algorithm2 import CodeSettings, learn_codes
from trainer.learn.dictionary import unit_rows
from trainer.learn.kernels import refine as kernels
from trainer.learn.kernels.swapping import swap_atoms
from trainer.learn.refine import coding_errors, refine_codes, refine_tree, relative_error
from trainer.learn.somp import group_by_leaf
from trainer.learn.training_run import RunSettings, learn_tree_codes
from trainer.learn.tree import TreeSettings, build_tree


def _points(n: int, seed: int = 0, width: int = 12) -> Float32Array:
    rng = np.random.default_rng(seed)
    mixture = rng.normal(size=(n, 4)) ** 3 @ np.random.default_rng(99).normal(size=(4, width))
    return (mixture + 0.3 * rng.normal(size=(n, width))).astype(np.float32)


def _points_for(tree: Tree, n: int, seed: int) -> Float32Array:
    """Points that the tree can route: narrow ones have no signs."""
    points = _points(n, seed)
    return points if tree.wide else np.abs(points)


@pytest.fixture(scope="module", params=[True, False], ids=["wide", "narrow"])
def learned(request: pytest.FixtureRequest) -> tuple[Float32Array, Tree, Coder]:
    points, wide = _points(4000), bool(request.param)
    points = points if wide else np.abs(points)
    tree = build_tree(points, TreeSettings(depth=5, wide=wide))
    settings = CodeSettings(24, 3, 4, wide=wide)
    coder = learn_codes(points, tree, settings, np.random.default_rng(0)).coder
    assert (tree.wide, coder.wide) == (wide, wide)
    return points, tree, coder


def test_coding_errors_are_those_of_least_squares(
    learned: tuple[Float32Array, Tree, Coder],
) -> None:
    points, tree, coder = learned
    leaf_ids = tree.route(points[:50])
    for x, leaf, found in zip(
        points, leaf_ids, coding_errors(points[:50], leaf_ids, coder), strict=False
    ):
        atoms = coder.dictionary[coder.table[leaf]]
        z = reference.least_squares_code(atoms, x)
        # Half a step in each value moves ‖x - Wz‖ by no more than that, and its square by twice
        # the product with it; ‖x‖² less a sum nearly as large is absolute in units of ‖x‖².
        residual = float(np.linalg.norm(x - z @ atoms))
        moved = reference.step_of(x, wide=tree.wide) * (1 + np.sqrt(len(x)) / 2)
        bound = 2 * moved * (float(np.linalg.norm(x)) + moved) + 1e-5 * float(x @ x)
        assert found == pytest.approx(residual**2, abs=bound)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 31, 33, 4000])
def test_walking_from_the_root_is_routing(
    learned: tuple[Float32Array, Tree, Coder], count: int
) -> None:
    points, tree, coder = learned
    sweep = refine._Sweep(points, tree, coder)
    found = sweep.walk(np.zeros(len(points), np.int32), slice(count), tree.depth)
    np.testing.assert_array_equal(found, tree.route(points[:count]))


def test_walking_on_from_the_node_of_any_level_is_routing(
    learned: tuple[Float32Array, Tree, Coder],
) -> None:
    points, tree, coder = learned
    sweep = refine._Sweep(points, tree, coder)
    for level in range(tree.depth):
        found = sweep.walk(sweep.nodes_at(level), slice(3, 1000), tree.depth)
        np.testing.assert_array_equal(found, tree.route(points[3:1000]))


def test_walking_from_a_leaf_stays_there(learned: tuple[Float32Array, Tree, Coder]) -> None:
    points, tree, coder = learned
    leaf_ids = np.arange(len(points), dtype=np.int32) % tree.n_leaves
    found = refine._Sweep(points, tree, coder).walk(
        leaf_ids + tree.n_leaves - 1, slice(None), tree.depth
    )
    np.testing.assert_array_equal(found, leaf_ids)


def test_costs_of_a_level_are_those_of_walking_on(
    learned: tuple[Float32Array, Tree, Coder],
) -> None:
    points, tree, coder = learned
    sweep = refine._Sweep(points, tree, coder)
    for level in (4, 3, 2):
        sweep.refine_level(level)
    leaf_ids = sweep.tree().route(points)
    np.testing.assert_allclose(sweep.costs, coding_errors(points, leaf_ids, coder), atol=1e-4)


def test_refining_lowers_the_error_of_new_points(
    learned: tuple[Float32Array, Tree, Coder],
) -> None:
    points, tree, coder = learned
    refined = refine_tree(points, tree, coder)
    assert refined.wide is tree.wide
    new = _points_for(tree, 4000, seed=1)
    before = coding_errors(new, tree.route(new), coder).sum()
    after = coding_errors(new, refined.route(new), coder).sum()
    assert after < 0.97 * before


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("per_image", [1, 4])
def test_the_error_of_held_out_images_never_rises(seed: int, per_image: int) -> None:
    # So few that a fit alone would often lose.
    points = _points(60, seed)
    tree = build_tree(points, TreeSettings(depth=1))
    coder = learn_codes(points, tree, CodeSettings(8, 3, 2), np.random.default_rng(0)).coder
    image_ids = (np.arange(60) // per_image).astype(np.int32)
    held_out = points[image_ids % 5 == 0]
    before, after = (
        coding_errors(held_out, found.route(held_out), coder).sum(dtype=np.float64)
        for found in (tree, refine_tree(points, tree, coder, image_ids))
    )
    # The root's members are all points, in order; rounding is all that may differ.
    assert after <= before * (1 + 1e-5)


def test_a_tree_of_one_image_stays_because_nothing_can_judge_it(
    learned: tuple[Float32Array, Tree, Coder],
) -> None:
    points, tree, coder = learned
    refined = refine_tree(points, tree, coder, np.zeros(len(points), np.int32))
    np.testing.assert_array_equal(refined.vectors, tree.vectors)


def test_refining_twice_gives_the_same_bits(learned: tuple[Float32Array, Tree, Coder]) -> None:
    first, second = (refine_tree(*learned) for _ in range(2))
    assert first.vectors.tobytes() == second.vectors.tobytes()
    assert first.thresholds.tobytes() == second.thresholds.tobytes()


def test_a_tree_that_cannot_be_improved_stays(learned: tuple[Float32Array, Tree, Coder]) -> None:
    points, tree, coder = learned
    table = np.tile(coder.table[:1], (tree.n_leaves, 1))
    same = Coder.from_table(table, coder.dictionary, wide=coder.wide)
    refined = refine_tree(points, tree, same)
    np.testing.assert_array_equal(refined.vectors, tree.vectors)
    np.testing.assert_array_equal(refined.thresholds, tree.thresholds)


@pytest.mark.parametrize(
    ("projections", "gains", "cut"),
    [
        ([0.1, 0.2, 0.3, 0.4], [-1, -1, 2, 1], 0.25),
        ([0.1, 0.2, 0.3, 0.4], [-1, -1, -2, -1], 2.0),
        ([0.1, 0.2, 0.3, 0.4], [1, 1, 2, 1], -2.0),
        ([0.1, 0.3, 0.3, 0.4], [-9, -1, 3, 1], 0.2),
    ],
)
def test_best_cut_takes_the_most_gain(
    projections: list[float], gains: list[float], cut: float
) -> None:
    # As plain Python: it is a part of a kernel, and to compile it alone takes seconds.
    best_cut = kernels._best_cut.py_func  # type: ignore[attr-defined]
    found = best_cut(np.array(projections, np.float32), np.array(gains, np.float32))
    assert found == pytest.approx(cut)


def test_zero_points_and_duplicates_are_safe() -> None:
    points = np.concatenate([np.zeros((40, 12), np.float32), np.repeat(_points(2), 40, axis=0)])
    tree = build_tree(points, TreeSettings(depth=2))
    settings = CodeSettings(4, 2, 2)
    coder = learn_codes(points, tree, settings, np.random.default_rng(0)).coder
    refined = refine_tree(points, tree, coder)
    assert np.isfinite(refined.vectors).all()
    assert np.isfinite(refined.thresholds).all()


def _one_round_of_swaps(points: Float32Array, dictionary: Float32Array, atoms: list[int]) -> float:
    """The squared residual after each atom in turn gave way to the best one."""

    def residual(chosen: list[int]) -> float:
        return sum(
            float(
                (
                    (x - reference.least_squares_code(dictionary[chosen], x) @ dictionary[chosen])
                    ** 2
                ).sum()
            )
            for x in points
        )

    for _ in range(len(atoms)):
        others = atoms[1:]
        free = [atom for atom in range(len(dictionary)) if atom not in others]
        atoms = [*others, min(free, key=lambda atom: residual([*others, atom]))]
    return residual(atoms)


@pytest.mark.parametrize("n", [1, 15, 16, 17])
def test_swapping_is_the_best_exchange_of_every_atom_in_turn(n: int) -> None:
    points = _points(n)
    dictionary = unit_rows(_points(20, seed=7))
    chosen = np.array([3, 0, 11], np.int32)
    expected = _one_round_of_swaps(points, dictionary, [3, 0, 11])
    swap_atoms(points @ dictionary.T, frozen(dictionary @ dictionary.T), chosen)
    assert len(set(chosen)) == 3
    coder = Coder.from_table(chosen[None], dictionary)
    found = coding_errors(points, np.zeros(n, np.int32), coder).sum()
    energy = float((points**2).sum())
    assert found == pytest.approx(expected, abs=1e-3 * energy)


def test_swapping_leaves_equal_atoms_alone() -> None:
    dictionary = np.repeat(np.eye(12, dtype=np.float32)[:2], 3, axis=0)
    chosen = np.array([1, 4], np.int32)
    swap_atoms(_points(9) @ dictionary.T, frozen(dictionary @ dictionary.T), chosen)
    assert sorted(chosen) == [1, 4]


def test_refined_codes_are_better_on_new_points(
    learned: tuple[Float32Array, Tree, Coder],
) -> None:
    points, tree, coder = learned
    buckets = group_by_leaf(points, tree.route(points), tree.n_leaves, wide=tree.wide)
    table, dictionary, error = refine_codes(buckets, coder.table, coder.dictionary)
    refined = Coder.from_table(table, dictionary, wide=tree.wide)
    before, after = (
        relative_error(points, coding_errors(points, tree.route(points), found))
        for found in (coder, refined)
    )
    assert after < before
    assert error == pytest.approx(after, rel=1e-5)
    new = _points_for(tree, 4000, seed=1)
    leaf_ids = tree.route(new)
    assert coding_errors(new, leaf_ids, refined).sum() < coding_errors(new, leaf_ids, coder).sum()


def test_leaves_glued_into_groups_stay_in_them() -> None:
    points = _points(600)
    tree = build_tree(points, TreeSettings(depth=4))
    settings = RunSettings(CodeSettings(12, 3, 2, groups=5), refinements=1)
    _, learned = learn_tree_codes(points, tree, settings)
    assert len(np.unique(np.sort(learned.coder.table, axis=1), axis=0)) <= 5
    assert len(learned.relative_errors) == 4  # two iterations, codes, codes after the sweep


def test_nothing_to_code_has_no_error() -> None:
    assert relative_error(np.zeros((3, 4), np.float32), np.zeros(3, np.float32)) == 0
