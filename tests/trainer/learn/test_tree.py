"""The 2-means tree: its splits against a slow oracle, and awkward data."""

import numpy as np
import pytest

from service.engine.arrays import Float32Array
from tests import reference
from trainer.errors import DataError
from trainer.learn import tree as tree_module
from trainer.learn.tree import (
    TreeSettings,
    build_tree,
    grow_below,
    grow_tree,
    joined_tree,
    top_depth,
)

wide_and_narrow = pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])


def _descriptors(n: int, seed: int = 0, width: int = 16) -> Float32Array:
    points = np.abs(np.random.default_rng(seed).normal(size=(n, width)))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points.astype(np.float32)


@wide_and_narrow
@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_root_vector_is_the_direction_between_two_means(rounds: int, *, wide: bool) -> None:
    points = _descriptors(200)
    tree = build_tree(points, TreeSettings(depth=1, rounds=rounds, wide=wide))
    expected = reference.two_means_direction(points, rounds)
    if not wide:  # its largest value is one
        expected /= np.abs(expected).max()
    # Half a unit of the fixed-point vector, and the rounding of float32 before it.
    unit = 2**15 if wide else 127
    np.testing.assert_allclose(tree.vectors[0], expected, atol=0.5 / unit + 2e-5)


@wide_and_narrow
def test_root_parts_descriptors_in_two_halves_up_to_rounding(*, wide: bool) -> None:
    points = _descriptors(1001)
    tree = build_tree(points, TreeSettings(depth=1, wide=wide))
    oracle = reference.DecisionTree(tree.vectors, tree.thresholds, wide)
    # Rounding may move those that are near the boundary, and the boundary itself.
    margins = np.array([oracle.margin(x, 0) for x in points])
    roundings = np.array([oracle.rounding(x, 0) for x in points])
    doubtful = np.count_nonzero(np.abs(margins) <= 2 * roundings)
    right = int(tree.route(points).sum())
    assert abs(right - 500.5) <= doubtful + 0.5
    assert doubtful < (3 if wide else 150)


def test_root_threshold_is_at_the_median_angle() -> None:
    points = _descriptors(201)
    tree = build_tree(points, TreeSettings(depth=1))
    cosines = points.astype(np.float64) @ tree.vectors[0] / np.linalg.norm(points, axis=1)
    assert np.count_nonzero(cosines > tree.thresholds[0]) == 101
    assert np.count_nonzero(cosines < tree.thresholds[0]) == 100


def test_leaves_of_a_narrow_tree_hold_about_equally_many_descriptors() -> None:
    """Rounding moves some across a boundary, but no leaf is empty or twice as full."""
    points = _descriptors(4096)
    leaf_ids = build_tree(points, TreeSettings(6, wide=False)).route(points)
    counts = np.bincount(leaf_ids, minlength=64)
    assert counts.min() > 32
    assert counts.max() < 128


@pytest.mark.parametrize(("n", "depth"), [(16, 4), (17, 4), (1000, 6), (4096, 8)])
def test_leaves_hold_equally_many_descriptors(n: int, depth: int) -> None:
    points = _descriptors(n)
    counts = np.bincount(build_tree(points, TreeSettings(depth)).route(points), minlength=2**depth)
    assert counts.max() - counts.min() <= 1


@wide_and_narrow
def test_splitting_does_not_depend_on_the_length_of_descriptors(*, wide: bool) -> None:
    points = _descriptors(256)
    lengths = 2.0 ** np.random.default_rng(1).integers(-3, 1, (256, 1))
    tree = build_tree(points, TreeSettings(depth=3, wide=wide))
    np.testing.assert_array_equal(
        tree.route(points), tree.route((points * lengths).astype(np.float32))
    )


@wide_and_narrow
def test_identical_descriptors_stop_at_the_root_and_all_go_to_the_first_leaf(*, wide: bool) -> None:
    points = np.repeat(_descriptors(1), 64, axis=0)
    tree = build_tree(points, TreeSettings(depth=4, wide=wide))
    assert not tree.vectors.any()
    assert not tree.route(points).any()


@wide_and_narrow
def test_all_zero_descriptors_are_safe(*, wide: bool) -> None:
    points = np.zeros((32, 16), np.float32)
    assert not build_tree(points, TreeSettings(depth=3, wide=wide)).route(points).any()


def test_duplicates_leave_no_side_of_a_split_empty() -> None:
    """A median split of duplicates once left one side empty."""
    points = np.concatenate([np.repeat(_descriptors(1), 90, axis=0), _descriptors(10, seed=1)])
    tree = build_tree(points, TreeSettings(depth=1))
    assert set(tree.route(points)) == {0, 1}


@wide_and_narrow
def test_zeros_among_descriptors_are_safe(*, wide: bool) -> None:
    points = np.concatenate([np.zeros((50, 16), np.float32), _descriptors(50)])
    tree = build_tree(points, TreeSettings(depth=5, wide=wide))
    leaf_ids = tree.route(points)
    assert len(set(leaf_ids[:50])) == 1
    assert len(set(leaf_ids[50:])) > 8
    assert np.isfinite(tree.vectors).all()


def test_a_piece_within_the_radius_is_not_split() -> None:
    rng = np.random.default_rng(0)
    tight = _descriptors(1) + rng.normal(0, 1e-3, (64, 16)).astype(np.float32)
    assert not build_tree(tight, TreeSettings(depth=3, radius=0.1)).vectors.any()
    assert build_tree(tight, TreeSettings(depth=3, radius=0.0)).vectors.any()


def test_fewer_descriptors_than_leaves_are_refused_with_both_numbers() -> None:
    with pytest.raises(DataError, match="15 descriptors are fewer than the 16 leaves"):
        build_tree(_descriptors(15), TreeSettings(depth=4))


@wide_and_narrow
def test_building_twice_gives_the_same_bits(*, wide: bool) -> None:
    settings = TreeSettings(depth=7, wide=wide)
    first, second = (build_tree(_descriptors(3000), settings) for _ in range(2))
    assert first.vectors.tobytes() == second.vectors.tobytes()
    assert first.thresholds.tobytes() == second.thresholds.tobytes()


@pytest.mark.parametrize("levels", [0, 1, 3, 5])
def test_a_tree_below_its_own_top_is_the_same_tree(levels: int) -> None:
    points, settings = _descriptors(500), TreeSettings(depth=5)
    top = grow_tree(points, TreeSettings(levels))
    whole, joined = build_tree(points, settings), grow_below(top, points, settings)
    np.testing.assert_array_equal(joined.directions, whole.directions)
    np.testing.assert_array_equal(joined.cuts, whole.cuts)


@wide_and_narrow
def test_a_tree_below_a_given_top_keeps_its_decisions_bit_for_bit(*, wide: bool) -> None:
    points = _descriptors(500)
    top = build_tree(_descriptors(60, seed=1), TreeSettings(2, wide=wide))
    tree = grow_below(top, points, TreeSettings(5, wide=wide))
    assert tree.wide is wide
    np.testing.assert_array_equal(tree.directions[:3], top.directions)
    np.testing.assert_array_equal(tree.cuts[:3], top.cuts)
    np.testing.assert_array_equal(tree.route(points) >> 3, top.route(points))


def test_leaves_below_a_given_top_hold_equally_many_descriptors() -> None:
    points, top = _descriptors(500), build_tree(_descriptors(60, seed=1), TreeSettings(2))
    tree = grow_below(top, points, TreeSettings(5))
    counts = np.bincount(tree.route(points), minlength=32).reshape(4, 8)
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1


def test_a_leaf_of_the_top_without_descriptors_ends_its_branch() -> None:
    points, top = _descriptors(64), build_tree(_descriptors(60, seed=1), TreeSettings(2))
    kept = points[top.route(points) != 2]
    tree = grow_below(top, kept, TreeSettings(3))
    assert not tree.directions[3 + 2].any()
    assert set(tree.route(points[top.route(points) == 2])) <= {4}


@wide_and_narrow
def test_a_large_tree_is_a_top_of_some_descriptors_and_subtrees_of_all(
    monkeypatch: pytest.MonkeyPatch, *, wide: bool
) -> None:
    monkeypatch.setattr(tree_module, "_PER_SUBTREE", 300)
    monkeypatch.setattr(tree_module, "_TOP_SAMPLE", 700)
    points, settings = _descriptors(3000), TreeSettings(depth=6, wide=wide)
    above, below = (TreeSettings(depth, wide=wide) for depth in (4, 2))
    top = grow_tree(np.ascontiguousarray(points[::5]), above)
    leaf_ids = top.route(points)
    subtrees = [grow_tree(points[leaf_ids == leaf], below) for leaf in range(16)]
    expected, found = joined_tree(top, subtrees), build_tree(points, settings)
    np.testing.assert_array_equal(found.directions, expected.directions)
    np.testing.assert_array_equal(found.cuts, expected.cuts)


@pytest.mark.parametrize(
    ("n_descriptors", "depth", "expected"),
    [(9, 13, 0), (32767, 13, 0), (32768, 13, 1), (10**6, 0, 0), (10**6, 3, 2), (10**9, 18, 6)],
)
def test_the_top_grows_with_the_descriptors_and_leaves_a_level_below(
    n_descriptors: int, depth: int, expected: int
) -> None:
    assert top_depth(n_descriptors, depth) == expected
