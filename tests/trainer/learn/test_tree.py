"""The 2-means tree: its splits against a slow oracle, and awkward data."""

import numpy as np
import pytest

from service.engine.arrays import Float32Array
from tests import reference
from trainer.errors import DataError
from trainer.learn.tree import TreeSettings, build_tree


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


@pytest.mark.parametrize("top_depth", [0, 1, 3, 5])
def test_a_tree_below_its_own_top_is_the_same_tree(top_depth: int) -> None:
    points, settings = _descriptors(500), TreeSettings(depth=5)
    top = build_tree(points, TreeSettings(top_depth))
    whole, joined = build_tree(points, settings), build_tree(points, settings, top)
    np.testing.assert_array_equal(joined.directions, whole.directions)
    np.testing.assert_array_equal(joined.cuts, whole.cuts)


def test_a_tree_below_a_given_top_keeps_its_decisions() -> None:
    points, top = _descriptors(500), build_tree(_descriptors(60, seed=1), TreeSettings(2))
    tree = build_tree(points, TreeSettings(5), top)
    np.testing.assert_array_equal(tree.route(points) >> 3, top.route(points))
    counts = np.bincount(tree.route(points), minlength=32).reshape(4, 8)
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1


def test_a_leaf_of_the_top_without_descriptors_ends_its_branch() -> None:
    points, top = _descriptors(64), build_tree(_descriptors(60, seed=1), TreeSettings(2))
    kept = points[top.route(points) != 2]
    tree = build_tree(kept, TreeSettings(3), top)
    assert not tree.directions[3 + 2].any()
    assert set(tree.route(points[top.route(points) == 2])) <= {4}
