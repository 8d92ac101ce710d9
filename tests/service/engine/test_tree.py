"""Routing against a recursive oracle, one descriptor at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import FixedRows, Float32Array
from service.engine.fixedpoint import Descriptors
from service.engine.tree import Tree, norms_of
from tests import reference
from tests.reference import EPSILON, DecisionTree
from tests.support.samples import AWKWARD_COUNTS, PROPERTY, random_descriptors

seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from(AWKWARD_COUNTS)
# None while a tree is grown; from nine on, children are fetched.
depths = st.integers(0, 10)
widths = st.sampled_from([1, 2, 7, 8, 15, 16, 17, 128, 129, 256, 300])
# Of nodes.
KINDS: dict[bool, type[np.int8 | np.int16]] = {True: np.int16, False: np.int8}
wide_and_narrow = pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])


def random_tree(
    rng: np.random.Generator, depth: int, width: int = 128, *, wide: bool = True
) -> Tree:
    """Decisions that part random descriptors, with signs or, if narrow, without."""
    nodes = 2**depth - 1
    vectors = random_descriptors(rng, nodes, width)
    # Without signs, descriptors are around (1, …, 1), at a distance of some 0.75 of its length.
    middles = np.zeros(nodes) if wide else vectors.sum(axis=1) / np.sqrt(width) * 0.8
    thresholds = (middles + rng.normal(scale=0.5, size=nodes)).astype(np.float32)
    return Tree.from_floats(vectors, thresholds, wide=wide)


def narrow_width(width: int, *, wide: bool) -> int:
    """Narrow directions have at most 128 values."""
    return width if wide else min(width, 128)


def single_node(vector: list[float], threshold: float) -> Tree:
    return Tree.from_floats(np.array([vector], np.float32), np.array([threshold], np.float32))


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, depth=depths, width=widths)
def test_every_decision_is_the_oracle_s_up_to_rounding(
    seed: int, count: int, depth: int, width: int, *, wide: bool
) -> None:
    rng, width = np.random.default_rng(seed), narrow_width(width, wide=wide)
    tree = random_tree(rng, depth, width, wide=wide)
    descriptors = random_descriptors(rng, count, width, signs=wide)
    oracle = DecisionTree(tree.vectors, tree.thresholds, wide)
    decisions = [
        decision
        for descriptor, leaf in zip(descriptors, tree.route(descriptors), strict=True)
        for decision in reference.decision_margins(oracle, descriptor, int(leaf))
    ]
    assert len(decisions) == count * depth
    assert all(
        margin > -rounding if right else margin <= rounding for right, margin, rounding in decisions
    )


def routed_by_integers(tree: Tree, descriptors: Descriptors) -> list[int]:
    directions, _, norms = descriptors.fixed(wide=tree.wide)
    return [
        reference.route_integers(tree.directions, tree.cuts, direction, norm)
        for direction, norm in zip(directions, norms, strict=True)
    ]


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, depth=depths, width=widths)
def test_directions_route_exactly_as_whole_numbers_do(
    seed: int, count: int, depth: int, width: int, *, wide: bool
) -> None:
    rng, width = np.random.default_rng(seed), narrow_width(width, wide=wide)
    tree = random_tree(rng, depth, width, wide=wide)
    descriptors = Descriptors.of(random_descriptors(rng, count, width, signs=wide))
    assert tree.route(descriptors).tolist() == routed_by_integers(tree, descriptors)


@wide_and_narrow
def test_random_trees_part_random_descriptors(*, wide: bool) -> None:
    """What is compared above would fail for another decision."""
    rng = np.random.default_rng(0)
    tree, descriptors = random_tree(rng, 5, wide=wide), random_descriptors(rng, 400, signs=wide)
    assert np.count_nonzero(np.bincount(tree.route(descriptors), minlength=32)) > 16


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts)
def test_descriptors_on_a_boundary_route_as_whole_numbers_do(
    seed: int, count: int, *, wide: bool
) -> None:
    """The cuts are around what the descriptors have, where the last bit of float32 decides."""
    rng = np.random.default_rng(seed)
    descriptors = Descriptors.of(random_descriptors(rng, max(count, 1), signs=wide))
    directions, _, norms = descriptors.fixed(wide=wide)
    vectors: FixedRows = rng.integers(-90, 91, (7, 128)).astype(KINDS[wide])
    cosines = (vectors.astype(np.int64) @ directions[0].astype(np.int64)) / norms[0]
    cuts = cosines.astype(np.float32)
    moved = np.nextafter(cuts, np.float32(rng.choice([-np.inf, np.inf])))
    tree = Tree(vectors, np.where(rng.random(7) < 0.5, cuts, moved))
    assert tree.route(descriptors).tolist() == routed_by_integers(tree, descriptors)


@PROPERTY
@given(seeds, counts, depths)
def test_a_widened_tree_decides_the_same_up_to_rounding(seed: int, count: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, depth, wide=False)
    widened = tree.widened()
    assert (tree.wide, widened.wide) == (False, True)
    descriptors = random_descriptors(rng, count)
    oracle = DecisionTree(tree.vectors, tree.thresholds, wide=True)
    assert all(
        margin > -rounding if right else margin <= rounding
        for descriptor, leaf in zip(descriptors, widened.route(descriptors), strict=True)
        for right, margin, rounding in reference.decision_margins(oracle, descriptor, int(leaf))
    )


@wide_and_narrow
@pytest.mark.parametrize("count", AWKWARD_COUNTS)
def test_route_answers_one_int32_per_descriptor(count: int, *, wide: bool) -> None:
    rng = np.random.default_rng(count)
    leaf_ids = random_tree(rng, 4, wide=wide).route(random_descriptors(rng, count, signs=wide))
    assert leaf_ids.shape == (count,)
    assert leaf_ids.dtype == np.int32


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, depth=depths)
def test_leaf_ids_lie_between_zero_and_the_number_of_leaves(
    seed: int, count: int, depth: int, *, wide: bool
) -> None:
    # With signs, too, which narrow directions cannot have.
    rng = np.random.default_rng(seed)
    leaf_ids = random_tree(rng, depth, wide=wide).route(random_descriptors(rng, count))
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


@pytest.mark.parametrize(
    ("descriptor", "wide"),
    [
        ([-32.0, 0.0, 24.0], True),
        ([0.0, 1.0], True),
        # Of one value, so that the norm is a whole number.
        ([0.0, 1.0], False),
        ([0.0, 127.0, 0.0], False),
    ],
)
def test_ties_go_left(descriptor: list[float], *, wide: bool) -> None:
    row = np.array([descriptor], np.float32)
    direction, _, norms = Descriptors.of(row).fixed(wide=wide)
    vector: FixedRows = direction.astype(KINDS[wide])
    cosine = np.float32(direction[0].astype(int) @ direction[0].astype(int)) / norms[0]
    leaf_ids = [
        Tree(vector, np.array([cut], np.float32)).route(row)[0]
        for cut in (cosine, np.nextafter(cosine, np.float32(0)))
    ]
    assert leaf_ids == [0, 1]


def test_a_right_angle_does_not_exceed_zero() -> None:
    assert single_node([1.0, 0.0], 0.0).route(np.array([[0.0, 1.0]], np.float32)).tolist() == [0]


@wide_and_narrow
@PROPERTY
@given(seed=seeds, depth=depths, width=widths)
def test_a_tree_made_float_and_fixed_again_is_the_same(
    seed: int, depth: int, width: int, *, wide: bool
) -> None:
    rng, width = np.random.default_rng(seed), narrow_width(width, wide=wide)
    tree = random_tree(rng, depth, width, wide=wide)
    # A branch that stopped, and a node whose zero vector has a threshold that decides.
    vectors, thresholds = tree.vectors.copy(), tree.thresholds.copy()
    vectors[-1:], thresholds[-1:] = 0, rng.choice([-0.5, 0.0, 0.5])
    tree = Tree.from_floats(vectors, thresholds, wide=wide)
    again = Tree.from_floats(tree.vectors, tree.thresholds, wide=wide)
    np.testing.assert_array_equal(again.directions, tree.directions)
    np.testing.assert_array_equal(again.cuts, tree.cuts)
    assert (again.wide, again.width) == (wide, width)


@pytest.mark.parametrize("threshold", [-1.0, -0.0, 0.0, 1.0])
def test_a_zero_descriptor_goes_left(threshold: float) -> None:
    tree = single_node([1.0, -1.0], threshold)
    assert tree.route(np.zeros((1, 2), np.float32)).tolist() == [0]


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, depth=depths, value=st.sampled_from([0.0, 1e-40, 1e-35]))
def test_descriptors_of_no_length_reach_the_leftmost_leaf(
    seed: int, count: int, depth: int, value: float, *, wide: bool
) -> None:
    tree = random_tree(np.random.default_rng(seed), depth, wide=wide)
    assert not tree.route(np.full((count, 128), value, np.float32)).any()


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, depth=depths)
def test_a_tree_of_zero_vectors_sends_everything_to_the_leftmost_leaf(
    seed: int, count: int, depth: int, *, wide: bool
) -> None:
    nodes = 2**depth - 1
    zeros = np.zeros((nodes, 128), np.float32), np.zeros(nodes, np.float32)
    descriptors = random_descriptors(np.random.default_rng(seed), count, signs=wide)
    assert not Tree.from_floats(*zeros, wide=wide).route(descriptors).any()


@wide_and_narrow
@pytest.mark.parametrize(("threshold", "leaf"), [(-0.5, 1), (-0.0, 0), (0.0, 0), (0.5, 0)])
def test_a_zero_vector_decides_by_its_threshold(threshold: float, leaf: int, *, wide: bool) -> None:
    cut = np.array([threshold], np.float32)
    tree = Tree.from_floats(np.zeros((1, 128), np.float32), cut, wide=wide)
    assert tree.route(np.ones((9, 128), np.float32)).tolist() == [leaf] * 9


@wide_and_narrow
@PROPERTY
@given(seed=seeds)
def test_a_branch_that_stopped_early_ends_in_its_leftmost_leaf(seed: int, *, wide: bool) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 4, wide=wide)
    vectors, thresholds = tree.vectors.copy(), tree.thresholds.copy()
    # Everything below node 2, the root's right child, and that child itself.
    below = [2, 5, 6, 11, 12, 13, 14]
    vectors[below], thresholds[below] = 0, 0
    descriptors = random_descriptors(rng, 33, signs=wide)
    right = tree.route(descriptors) >= 8
    stopped = Tree.from_floats(vectors, thresholds, wide=wide)
    np.testing.assert_array_equal(stopped.route(descriptors)[right], 8)


@wide_and_narrow
@PROPERTY
@given(seed=seeds, count=counts, exponent=st.integers(-20, 20))
def test_leaf_ids_depend_on_the_angle_alone(
    seed: int, count: int, exponent: int, *, wide: bool
) -> None:
    # A power of two changes no mantissa, so that not even rounding differs.
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 5, wide=wide)
    descriptors = random_descriptors(rng, count, signs=wide)
    scaled = descriptors * np.float32(2.0**exponent)
    np.testing.assert_array_equal(tree.route(scaled), tree.route(descriptors))


@wide_and_narrow
@PROPERTY
@given(seed=seeds, cuts=st.lists(st.integers(0, 70), max_size=4))
def test_leaf_ids_do_not_depend_on_the_batches(seed: int, cuts: list[int], *, wide: bool) -> None:
    rng = np.random.default_rng(seed)
    tree = Tree.from_floats(random_descriptors(rng, 63), np.zeros(63, np.float32), wide=wide)
    descriptors = random_descriptors(rng, 70, signs=wide)
    if wide:
        # Half of them differ by a rounding or so from lying on the root's boundary.
        root = tree.vectors[0] / np.linalg.norm(tree.vectors[0])
        descriptors[::2] -= np.outer(descriptors[::2] @ root, root)
    parts = np.split(descriptors, sorted(cuts))
    routed = np.concatenate([tree.route(part) for part in parts])
    np.testing.assert_array_equal(routed, tree.route(descriptors))


@wide_and_narrow
@PROPERTY
@given(seed=seeds, place=st.integers(0, 64))
def test_a_descriptor_alone_takes_the_same_way(seed: int, place: int, *, wide: bool) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 6, wide=wide)
    descriptors = random_descriptors(rng, 65, signs=wide)
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
