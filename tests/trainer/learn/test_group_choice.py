"""Step 1 of Algorithm 2 against projections one by one, and groups that nobody chose."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.arrays import Float32Array, Int32Array
from service.engine.coding import invert_grams
from tests import reference
from trainer.learn.group_choice import best_groups, choose_groups, first_groups, glue
from trainer.learn.somp import LeafGroups, choose_active_sets, each_alone, group_by_leaf


def _unit(n: int, width: int, rng: np.random.Generator) -> Float32Array:
    rows = rng.normal(size=(n, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


def _table(n_groups: int, n_atoms: int, nonzeros: int, rng: np.random.Generator) -> Int32Array:
    return np.argsort(rng.random((n_groups, n_atoms)), axis=1)[:, :nonzeros].astype(np.int32)


def _best(buckets: LeafGroups, table: Int32Array, dictionary: Float32Array) -> Int32Array:
    inverses = invert_grams(table, dictionary.astype(np.float64)).astype(np.float64)
    return best_groups(buckets, table, inverses, dictionary)


def _errors(points: Float32Array, table: Int32Array, dictionary: Float32Array) -> list[float]:
    """Summed projection error of the points for each group, one projection at a time."""
    no_costs = np.zeros(table.shape[1])
    return [
        sum(reference.smallest_energy(dictionary[group], no_costs, x) for x in points)
        for group in table
    ]


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 17), st.integers(1, 9), st.integers(1, 4))
def test_descriptors_alone_choose_the_nearest_span(
    seed: int, n: int, n_groups: int, nonzeros: int
) -> None:
    rng = np.random.default_rng(seed)
    x, dictionary = _unit(n, 12, rng), _unit(15, 12, rng)
    table = _table(n_groups, 15, nonzeros, rng)
    chosen = _best(each_alone(x), table, dictionary)
    for point, group in zip(x, chosen, strict=True):
        errors = _errors(point[None], table, dictionary)
        assert errors[group] <= min(errors) + 1e-5


@pytest.mark.parametrize("n", [40, 255, 256, 257, 1100])
def test_a_bucket_chooses_the_smallest_summed_error(n: int) -> None:
    rng = np.random.default_rng(n)
    x, dictionary, table = _unit(n, 12, rng), _unit(15, 12, rng), _table(6, 15, 3, rng)
    leaf_ids = rng.choice([0, 2, 3, 7], n, p=[0.1, 0.1, 0.1, 0.7]).astype(np.int32)
    chosen = _best(group_by_leaf(x, leaf_ids, 9), table, dictionary)
    for leaf in np.unique(leaf_ids):
        errors = _errors(x[leaf_ids == leaf], table, dictionary)
        assert chosen[leaf] == np.argmin(errors)


def test_ties_and_all_zero_descriptors_go_to_the_first_group() -> None:
    rng = np.random.default_rng(0)
    table = np.array([[3, 4], [1, 2], [1, 2]], np.int32)
    dictionary = _unit(6, 8, rng)
    points = np.concatenate([dictionary[1:2], np.zeros((1, 8), np.float32)])
    np.testing.assert_array_equal(_best(each_alone(points), table, dictionary), [1, 0])


def test_linearly_dependent_atoms_are_one_direction() -> None:
    rng = np.random.default_rng(1)
    dictionary = _unit(6, 8, rng)
    dictionary[1] = dictionary[0]
    table = np.array([[0, 1], [2, 3]], np.int32)
    points = np.stack([dictionary[0], dictionary[3]])
    np.testing.assert_array_equal(_best(each_alone(points), table, dictionary), [0, 1])


@pytest.mark.parametrize("n_groups", [1, 2, 5, 12])
def test_every_group_is_used_even_if_all_points_prefer_one(n_groups: int) -> None:
    rng = np.random.default_rng(2)
    dictionary = _unit(20, 8, rng)
    points = np.repeat(dictionary[:1], 12, axis=0)
    table = np.tile(np.array([0, 1], np.int32), (n_groups, 1))
    chosen = choose_groups(each_alone(points), table, dictionary, rng).group_ids
    assert set(chosen) == set(range(n_groups))


def test_a_group_that_nobody_chose_codes_its_bucket_by_the_atoms_that_did() -> None:
    dictionary = np.eye(6, dtype=np.float32)
    table = np.array([[0, 1], [2, 3], [4, 5]], np.int32)
    points = np.eye(6, dtype=np.float32)[[0, 1, 2, 2]]  # nobody for the last group
    choice = choose_groups(each_alone(points), table, dictionary, np.random.default_rng(0))
    moved = int(np.flatnonzero(choice.group_ids == 2)[0])
    np.testing.assert_array_equal(choice.table[2], table[[0, 0, 1, 1]][moved])
    np.testing.assert_array_equal(choice.table[:2], table[:2])


def test_an_empty_leaf_follows_the_populated_one_before_it() -> None:
    rng = np.random.default_rng(3)
    x, dictionary, table = _unit(30, 8, rng), _unit(20, 8, rng), _table(2, 20, 2, rng)
    buckets = group_by_leaf(x, np.repeat([1, 4, 6], 10).astype(np.int32), 8)
    chosen = choose_groups(buckets, table, dictionary, rng).group_ids
    np.testing.assert_array_equal(chosen[[0, 2, 3, 5, 7]], chosen[[1, 1, 1, 4, 6]])


def test_first_groups_are_somp_on_different_buckets() -> None:
    rng = np.random.default_rng(4)
    x, dictionary = _unit(60, 16, rng), _unit(20, 16, rng)
    leaf_ids = np.repeat([0, 3, 4, 6], 15).astype(np.int32)
    buckets = group_by_leaf(x, leaf_ids, 8)
    found = first_groups(buckets, 3, dictionary, 3, rng)
    every = choose_active_sets(buckets, dictionary, 3)[[0, 3, 4, 6]]
    rows = {tuple(row) for row in found.tolist()}
    assert len(rows) == 3
    assert rows <= {tuple(row) for row in every.tolist()}


def test_gluing_keeps_every_descriptor_with_its_leaf() -> None:
    rng = np.random.default_rng(5)
    x = _unit(40, 8, rng)
    buckets = group_by_leaf(x, rng.integers(0, 6, 40).astype(np.int32), 6)
    glued = glue(buckets, np.array([1, 0, 1, 2, 0, 1], np.int32), 3)
    for group, leaves in enumerate([[1, 4], [0, 2, 5], [3]]):
        expected = np.concatenate([buckets.descriptors[buckets.members(i)] for i in leaves])
        np.testing.assert_array_equal(glued.descriptors[glued.members(group)], expected)
