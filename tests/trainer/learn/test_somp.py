"""SOMP on correlations against Algorithm 1 to the letter, and degenerate leaves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.arrays import Float32Array, Int32Array
from tests import reference
from trainer.learn import somp
from trainer.learn.somp import choose_active_sets, each_alone, group_by_leaf


def _unit(n: int, width: int, rng: np.random.Generator) -> Float32Array:
    rows = rng.normal(size=(n, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


def _choose(points: Float32Array, atoms: Float32Array, nonzeros: int) -> list[int]:
    groups = group_by_leaf(points, np.zeros(len(points), np.int32), 1)
    return [int(atom) for atom in choose_active_sets(groups, atoms, nonzeros)[0]]


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(6, 40), st.integers(1, 5))
def test_atoms_are_those_of_algorithm_1(seed: int, n_points: int, nonzeros: int) -> None:
    # Random atoms in 24 dimensions: no two sums are near enough for float32 to swap them
    # unless the residual is gone, which needs fewer points than nonzeros.
    rng = np.random.default_rng(seed)
    points, atoms = _unit(n_points, 24, rng), _unit(30, 24, rng)
    assert _choose(points, atoms, nonzeros) == reference.somp(points, atoms, nonzeros)


def test_planted_atoms_are_found() -> None:
    rng = np.random.default_rng(0)
    atoms = np.linalg.qr(rng.normal(size=(32, 32)))[0].astype(np.float32)
    points = (rng.uniform(1, 2, (50, 3)) @ atoms[[4, 17, 29]]).astype(np.float32)
    assert sorted(_choose(points, atoms, 3)) == [4, 17, 29]


@pytest.mark.parametrize("n_points", [1, 2, 4])
def test_fewer_points_than_nonzeros_still_give_different_atoms(n_points: int) -> None:
    rng = np.random.default_rng(1)
    chosen = _choose(_unit(n_points, 16, rng), _unit(20, 16, rng), 5)
    assert len(set(chosen)) == 5


def test_a_point_that_is_an_atom_takes_it_first_and_fills_up() -> None:
    rng = np.random.default_rng(2)
    atoms = _unit(12, 16, rng)
    chosen = _choose(np.repeat(atoms[7:8], 9, axis=0), atoms, 4)
    assert chosen[0] == 7
    assert len(set(chosen)) == 4


def test_all_zero_points_give_different_atoms() -> None:
    atoms = _unit(12, 16, np.random.default_rng(3))
    assert len(set(_choose(np.zeros((5, 16), np.float32), atoms, 4))) == 4


def test_copies_of_an_atom_are_not_chosen_together() -> None:
    rng = np.random.default_rng(4)
    atoms = _unit(12, 16, rng)
    atoms[3] = atoms[9]
    chosen = _choose(np.repeat(atoms[9:10], 6, axis=0) + 0.01 * _unit(6, 16, rng), atoms, 5)
    assert len({3, 9} & set(chosen)) == 1


def test_too_few_independent_atoms_fill_up_with_the_rest() -> None:
    atoms = np.repeat(_unit(2, 16, np.random.default_rng(5)), 3, axis=0)
    chosen = _choose(_unit(8, 16, np.random.default_rng(6)), atoms, 4)
    assert len(set(chosen)) == 4


@pytest.mark.parametrize("n_leaves", [1, 4, 64])
def test_every_leaf_chooses_for_itself(n_leaves: int) -> None:
    rng = np.random.default_rng(n_leaves)
    points, atoms = _unit(40 * n_leaves, 24, rng), _unit(30, 24, rng)
    leaf_ids: Int32Array = rng.integers(0, n_leaves, len(points)).astype(np.int32)
    table = choose_active_sets(group_by_leaf(points, leaf_ids, n_leaves), atoms, 3)
    expected = [reference.somp(points[leaf_ids == leaf], atoms, 3) for leaf in range(n_leaves)]
    np.testing.assert_array_equal(table, expected)


def test_an_empty_leaf_takes_the_active_set_of_the_leaf_before_it() -> None:
    rng = np.random.default_rng(8)
    points, atoms = _unit(30, 24, rng), _unit(30, 24, rng)
    leaf_ids = np.repeat([1, 4], 15).astype(np.int32)
    table = choose_active_sets(group_by_leaf(points, leaf_ids, 8), atoms, 3)
    np.testing.assert_array_equal(table[2], table[1])
    np.testing.assert_array_equal(table[7], table[4])
    np.testing.assert_array_equal(table[0], table[1])


def test_grouping_keeps_every_descriptor_once() -> None:
    rng = np.random.default_rng(9)
    points = _unit(50, 8, rng)
    groups = group_by_leaf(points, rng.integers(0, 7, 50).astype(np.int32), 7)
    assert sorted(map(bytes, groups.descriptors)) == sorted(map(bytes, points))
    for leaf in groups.populated:
        assert (groups.leaf_ids[groups.members(leaf)] == leaf).all()


@pytest.mark.parametrize("n_points", [1, 3, 40, 700])
def test_a_group_read_in_passes_chooses_the_same_atoms(
    n_points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(n_points)
    points, atoms = _unit(n_points, 24, rng), _unit(30, 24, rng)
    expected = _choose(points, atoms, 5)
    monkeypatch.setattr(somp, "_LEAF_FLOATS", 1)
    monkeypatch.setattr(somp, "_BLOCK_FLOATS", 64 * 30)
    assert _choose(points, atoms, 5) == expected


@pytest.mark.parametrize("kind", ["zeros", "duplicates", "dependent"])
def test_passes_fill_up_degenerate_groups_with_different_atoms(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    points, atoms = _unit(9, 16, rng), _unit(12, 16, rng)
    if kind == "zeros":
        points[:] = 0
    if kind == "duplicates":
        points[:] = atoms[7]
    if kind == "dependent":
        atoms[:] = np.repeat(atoms[:2], 6, axis=0)
    monkeypatch.setattr(somp, "_LEAF_FLOATS", 1)
    assert len(set(_choose(points, atoms, 4))) == 4


def test_descriptors_alone_are_their_own_leaves_and_are_not_copied() -> None:
    points = _unit(5, 8, np.random.default_rng(0))
    alone = each_alone(points)
    assert np.shares_memory(alone.descriptors, points)
    for leaf in range(5):
        np.testing.assert_array_equal(alone.descriptors[alone.members(leaf)], points[[leaf]])


def test_only_some_leaves_are_numbered_anew() -> None:
    rng = np.random.default_rng(9)
    groups = group_by_leaf(_unit(50, 8, rng), rng.integers(0, 7, 50).astype(np.int32), 7)
    kept = groups.only(np.array([2, 5], np.int32))
    for new, old in enumerate([2, 5]):
        np.testing.assert_array_equal(
            kept.descriptors[kept.members(new)], groups.descriptors[groups.members(old)]
        )
    assert kept.starts.shape == (3,)
