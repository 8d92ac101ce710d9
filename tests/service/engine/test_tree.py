"""Routing against a recursive oracle, one descriptor at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import Float32Array
from service.engine.fixedpoint import Descriptors
from service.engine.tree import Tree, norms_of
from tests import reference
from tests.reference import EPSILON, DecisionTree
from tests.support.samples import AWKWARD_COUNTS, PROPERTY, random_descriptors

seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from(AWKWARD_COUNTS)
depths = st.integers(1, 7)
widths = st.sampled_from([1, 2, 7, 8, 15, 16, 17, 128, 129, 300])


def random_tree(rng: np.random.Generator, depth: int, width: int = 128) -> Tree:
    nodes = 2**depth - 1
    thresholds = rng.normal(scale=0.5, size=nodes).astype(np.float32)
    return Tree.from_floats(random_descriptors(rng, nodes, width), thresholds)


def single_node(vector: list[float], threshold: float) -> Tree:
    return Tree.from_floats(np.array([vector], np.float32), np.array([threshold], np.float32))


@PROPERTY
@given(seeds, counts, depths, widths)
def test_every_decision_is_the_oracle_s_up_to_rounding(
    seed: int, count: int, depth: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    tree, descriptors = random_tree(rng, depth, width), random_descriptors(rng, count, width)
    oracle = DecisionTree(tree.vectors, tree.thresholds)
    decisions = [
        decision
        for descriptor, leaf in zip(descriptors, tree.route(descriptors), strict=True)
        for decision in reference.decision_margins(oracle, descriptor, int(leaf))
    ]
    assert len(decisions) == count * depth
    assert all(
        margin > -rounding if right else margin <= rounding for right, margin, rounding in decisions
    )


@PROPERTY
@given(seeds, counts, depths, widths)
def test_directions_route_exactly_as_whole_numbers_do(
    seed: int, count: int, depth: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, depth, width)
    descriptors = Descriptors.of(random_descriptors(rng, count, width))
    expected = [
        reference.route_integers(tree.directions, tree.cuts, direction)
        for direction in descriptors.fixed.directions
    ]
    assert tree.route(descriptors).tolist() == expected


@pytest.mark.parametrize("count", AWKWARD_COUNTS)
def test_route_answers_one_int32_per_descriptor(count: int) -> None:
    rng = np.random.default_rng(count)
    leaf_ids = random_tree(rng, 4).route(random_descriptors(rng, count))
    assert leaf_ids.shape == (count,)
    assert leaf_ids.dtype == np.int32


@PROPERTY
@given(seeds, counts, depths)
def test_leaf_ids_lie_between_zero_and_the_number_of_leaves(
    seed: int, count: int, depth: int
) -> None:
    rng = np.random.default_rng(seed)
    leaf_ids = random_tree(rng, depth).route(random_descriptors(rng, count))
    assert ((leaf_ids >= 0) & (leaf_ids < 2**depth)).all()


@pytest.mark.parametrize(
    ("descriptor", "threshold", "leaf"),
    [
        ([3.0, 4.0], 0.6, 0),  # cosine 0.6 exactly at the threshold rounded up
        ([3.0, 4.0], 0.5, 1),
        ([3.0, 4.0], 0.75, 0),
        ([-3.0, 4.0], -0.75, 1),
        ([-3.0, 4.0], -0.5, 0),
        ([0.0, 4.0], 0.0, 0),
    ],
)
def test_a_worked_example_compares_the_cosine_with_the_threshold(
    descriptor: list[float], threshold: float, leaf: int
) -> None:
    tree = single_node([1.0, 0.0], threshold)
    assert tree.route(np.array([descriptor], np.float32)).tolist() == [leaf]


@pytest.mark.parametrize("descriptor", [[3.0, 4.0], [-8.0, 6.0], [0.0, 1.0]])
def test_ties_go_left(descriptor: list[float]) -> None:
    row = np.array([descriptor], np.float32)
    direction = Descriptors.of(row).fixed.directions
    product = int(direction[0].astype(int) @ direction[0].astype(int))
    leaf_ids = [
        Tree(direction, np.array([cut], np.int32)).route(row)[0] for cut in (product, product - 1)
    ]
    assert leaf_ids == [0, 1]


def test_a_right_angle_does_not_exceed_zero() -> None:
    assert single_node([1.0, 0.0], 0.0).route(np.array([[0.0, 1.0]], np.float32)).tolist() == [0]


@PROPERTY
@given(seeds, depths, widths)
def test_a_tree_made_float_and_fixed_again_is_the_same(seed: int, depth: int, width: int) -> None:
    tree = random_tree(np.random.default_rng(seed), depth, width)
    again = Tree.from_floats(tree.vectors, tree.thresholds)
    np.testing.assert_array_equal(again.directions, tree.directions)
    np.testing.assert_array_equal(again.cuts, tree.cuts)


@pytest.mark.parametrize("threshold", [-1.0, -0.0, 0.0, 1.0])
def test_a_zero_descriptor_goes_left(threshold: float) -> None:
    tree = single_node([1.0, -1.0], threshold)
    assert tree.route(np.zeros((1, 2), np.float32)).tolist() == [0]


@PROPERTY
@given(seeds, counts, depths)
def test_zero_descriptors_reach_the_leftmost_leaf(seed: int, count: int, depth: int) -> None:
    tree = random_tree(np.random.default_rng(seed), depth)
    assert not tree.route(np.zeros((count, 128), np.float32)).any()


@PROPERTY
@given(seeds, counts, depths)
def test_a_tree_of_zero_vectors_sends_everything_to_the_leftmost_leaf(
    seed: int, count: int, depth: int
) -> None:
    nodes = 2**depth - 1
    tree = Tree.from_floats(np.zeros((nodes, 128), np.float32), np.zeros(nodes, np.float32))
    assert not tree.route(random_descriptors(np.random.default_rng(seed), count)).any()


@PROPERTY
@given(seeds)
def test_a_branch_that_stopped_early_ends_in_its_leftmost_leaf(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 4)
    vectors, thresholds = tree.vectors.copy(), tree.thresholds.copy()
    # Everything below node 2, the root's right child, and that child itself.
    below = [2, 5, 6, 11, 12, 13, 14]
    vectors[below], thresholds[below] = 0, 0
    descriptors = random_descriptors(rng, 33)
    right = tree.route(descriptors) >= 8
    np.testing.assert_array_equal(
        Tree.from_floats(vectors, thresholds).route(descriptors)[right], 8
    )


@PROPERTY
@given(seeds, counts, st.integers(-20, 20))
def test_leaf_ids_depend_on_the_angle_alone(seed: int, count: int, exponent: int) -> None:
    # A power of two changes no mantissa, so that not even rounding differs.
    rng = np.random.default_rng(seed)
    tree, descriptors = random_tree(rng, 5), random_descriptors(rng, count)
    scaled = descriptors * np.float32(2.0**exponent)
    np.testing.assert_array_equal(tree.route(scaled), tree.route(descriptors))


@PROPERTY
@given(seeds, st.lists(st.integers(0, 70), max_size=4))
def test_leaf_ids_do_not_depend_on_the_batches(seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    tree = Tree.from_floats(random_descriptors(rng, 63), np.zeros(63, np.float32))
    # Half of them differ by a rounding or so from lying on the root's boundary.
    descriptors = random_descriptors(rng, 70)
    root = tree.vectors[0] / np.linalg.norm(tree.vectors[0])
    descriptors[::2] -= np.outer(descriptors[::2] @ root, root)
    parts = np.split(descriptors, sorted(cuts))
    routed = np.concatenate([tree.route(part) for part in parts])
    np.testing.assert_array_equal(routed, tree.route(descriptors))


@PROPERTY
@given(seeds, st.integers(0, 32))
def test_a_descriptor_alone_takes_the_same_way(seed: int, place: int) -> None:
    rng = np.random.default_rng(seed)
    tree, descriptors = random_tree(rng, 6), random_descriptors(rng, 33)
    alone = tree.route(descriptors[place : place + 1])
    assert alone[0] == tree.route(descriptors)[place]


@PROPERTY
@given(seeds, counts, widths)
def test_norms_equal_the_oracle(seed: int, count: int, width: int) -> None:
    descriptors = random_descriptors(np.random.default_rng(seed), count, width)
    expected = np.linalg.norm(descriptors.astype(np.float64), axis=1)
    # Squares and their sums round at most width + 1 times, the root halves that.
    np.testing.assert_allclose(norms_of(descriptors), expected, rtol=(width + 2) * EPSILON)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_a_descriptor_that_is_not_finite_or_too_large_has_no_finite_norm(value: float) -> None:
    descriptors = np.ones((3, 128), np.float32)
    descriptors[1, 5] = value
    assert np.isfinite(norms_of(descriptors)).tolist() == [True, False, True]


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_depth_and_leaves_follow_from_the_nodes(depth: int) -> None:
    tree = random_tree(np.random.default_rng(0), depth, 4)
    assert (tree.depth, tree.n_leaves) == (depth, 2**depth)


def test_a_strided_view_routes_like_its_copy() -> None:
    rng = np.random.default_rng(1)
    tree = random_tree(rng, 5)
    view: Float32Array = random_descriptors(rng, 66)[::2]
    np.testing.assert_array_equal(tree.route(view), tree.route(view.copy()))


def test_the_arrays_of_a_tree_are_read_only() -> None:
    tree = random_tree(np.random.default_rng(2), 2)
    assert not tree.directions.flags.writeable
    assert not tree.cuts.flags.writeable
