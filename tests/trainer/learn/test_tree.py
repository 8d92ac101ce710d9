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


def _descriptors(n: int, seed: int = 0, width: int = 16) -> Float32Array:
    points = np.abs(np.random.default_rng(seed).normal(size=(n, width)))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points.astype(np.float32)


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_root_vector_is_the_direction_between_two_means(rounds: int) -> None:
    points = _descriptors(200)
    tree = build_tree(points, TreeSettings(depth=1, rounds=rounds))
    expected = reference.two_means_direction(points, rounds)
    # Half a unit of the fixed-point vector, and the rounding of float32 before it.
    np.testing.assert_allclose(tree.vectors[0], expected, atol=0.5 / 2**15 + 1e-5)


def test_root_threshold_is_at_the_median_angle() -> None:
    points = _descriptors(201)
    tree = build_tree(points, TreeSettings(depth=1))
    cosines = points.astype(np.float64) @ tree.vectors[0] / np.linalg.norm(points, axis=1)
    assert np.count_nonzero(cosines > tree.thresholds[0]) == 101
    assert np.count_nonzero(cosines < tree.thresholds[0]) == 100


@pytest.mark.parametrize(("n", "depth"), [(16, 4), (17, 4), (1000, 6), (4096, 8)])
def test_leaves_hold_equally_many_descriptors(n: int, depth: int) -> None:
    points = _descriptors(n)
    counts = np.bincount(build_tree(points, TreeSettings(depth)).route(points), minlength=2**depth)
    assert counts.max() - counts.min() <= 1


def test_splitting_does_not_depend_on_the_length_of_descriptors() -> None:
    points = _descriptors(256)
    lengths = 2.0 ** np.random.default_rng(1).integers(-3, 1, (256, 1))
    tree = build_tree(points, TreeSettings(depth=3))
    np.testing.assert_array_equal(
        tree.route(points), tree.route((points * lengths).astype(np.float32))
    )


def test_identical_descriptors_stop_at_the_root_and_all_go_to_the_first_leaf() -> None:
    points = np.repeat(_descriptors(1), 64, axis=0)
    tree = build_tree(points, TreeSettings(depth=4))
    assert not tree.vectors.any()
    assert not tree.route(points).any()


def test_all_zero_descriptors_are_safe() -> None:
    points = np.zeros((32, 16), np.float32)
    assert not build_tree(points, TreeSettings(depth=3)).route(points).any()


def test_duplicates_leave_no_side_of_a_split_empty() -> None:
    """A median split of duplicates once left one side empty."""
    points = np.concatenate([np.repeat(_descriptors(1), 90, axis=0), _descriptors(10, seed=1)])
    tree = build_tree(points, TreeSettings(depth=1))
    assert set(tree.route(points)) == {0, 1}


def test_zeros_among_descriptors_are_safe() -> None:
    points = np.concatenate([np.zeros((50, 16), np.float32), _descriptors(50)])
    tree = build_tree(points, TreeSettings(depth=5))
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


def test_building_twice_gives_the_same_bits() -> None:
    first, second = (build_tree(_descriptors(3000), TreeSettings(depth=7)) for _ in range(2))
    assert first.vectors.tobytes() == second.vectors.tobytes()
    assert first.thresholds.tobytes() == second.thresholds.tobytes()


@pytest.mark.parametrize("levels", [0, 1, 3, 5])
def test_a_tree_below_its_own_top_is_the_same_tree(levels: int) -> None:
    points, settings = _descriptors(500), TreeSettings(depth=5)
    top = grow_tree(points, TreeSettings(levels))
    whole, joined = build_tree(points, settings), grow_below(top, points, settings)
    np.testing.assert_array_equal(joined.directions, whole.directions)
    np.testing.assert_array_equal(joined.cuts, whole.cuts)


def test_a_tree_below_a_given_top_keeps_its_decisions() -> None:
    points, top = _descriptors(500), build_tree(_descriptors(60, seed=1), TreeSettings(2))
    tree = grow_below(top, points, TreeSettings(5))
    np.testing.assert_array_equal(tree.route(points) >> 3, top.route(points))
    counts = np.bincount(tree.route(points), minlength=32).reshape(4, 8)
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1


def test_a_leaf_of_the_top_without_descriptors_ends_its_branch() -> None:
    points, top = _descriptors(64), build_tree(_descriptors(60, seed=1), TreeSettings(2))
    kept = points[top.route(points) != 2]
    tree = grow_below(top, kept, TreeSettings(3))
    assert not tree.directions[3 + 2].any()
    assert set(tree.route(points[top.route(points) == 2])) <= {4}


def test_a_large_tree_is_a_top_of_some_descriptors_and_subtrees_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_module, "_PER_SUBTREE", 300)
    monkeypatch.setattr(tree_module, "_TOP_SAMPLE", 700)
    points, settings = _descriptors(3000), TreeSettings(depth=6)
    top = grow_tree(np.ascontiguousarray(points[::5]), TreeSettings(depth=4))
    leaf_ids = top.route(points)
    subtrees = [grow_tree(points[leaf_ids == leaf], TreeSettings(depth=2)) for leaf in range(16)]
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
