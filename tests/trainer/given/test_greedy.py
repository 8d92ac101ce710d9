"""The modified OMP: inside a group always, and the best group where greed suffices."""

from collections.abc import Collection, Sequence
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.arrays import Float32Array, Float64Array
from tests import reference
from trainer.given.greedy import Available, GreedyGroups
from trainer.given.groups import given_groups, learn_dictionary

Groups = Sequence[Collection[int]]

lists_of_groups = st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), min_size=1, max_size=8
)


def _available(groups: Groups) -> Available:
    def union(active: frozenset[int]) -> set[int]:
        return {atom for group in groups if active <= set(group) for atom in group}

    return union


def _atoms(n: int, width: int, seed: int) -> Float64Array:
    atoms = np.random.default_rng(seed).normal(size=(n, width))
    units: Float64Array = atoms / np.linalg.norm(atoms, axis=1, keepdims=True)
    return units


def _points(n: int, width: int, seed: int) -> Float32Array:
    return np.random.default_rng(seed + 1).normal(size=(n, width)).astype(np.float32)


@settings(max_examples=60)
@given(st.integers(0, 10_000), lists_of_groups, st.integers(1, 5))
def test_active_sets_lie_within_a_group(seed: int, groups: list[list[int]], nonzeros: int) -> None:
    points = _points(25, 6, seed)
    points[::5] = 0
    sets = GreedyGroups(_available(groups), nonzeros).choose(points, _atoms(10, 6, seed))
    for active in sets:
        assert any(active <= set(group) for group in groups)
        assert len(active) <= nonzeros
    assert sorted(np.concatenate(list(sets.values()))) == list(range(25))


@settings(max_examples=40)
@given(st.integers(0, 10_000), lists_of_groups)
def test_exhaustive_search_is_never_worse(seed: int, groups: list[list[int]]) -> None:
    points, atoms = _points(20, 6, seed), _atoms(10, 6, seed)
    greedy = GreedyGroups(_available(groups), 4).encode(points, atoms)
    best = given_groups(groups).encode(points, atoms)
    assert (greedy.energies >= best.energies - 1e-9).all()


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_all_subsets_of_orthonormal_atoms_give_the_exhaustive_answer(seed: int, size: int) -> None:
    atoms = np.linalg.qr(_atoms(7, 7, seed))[0]
    groups = list(combinations(range(7), size))
    points = _points(20, 7, seed)
    greedy = GreedyGroups(_available(groups), size).encode(points, atoms)
    best = given_groups(groups).encode(points, atoms)
    np.testing.assert_allclose(greedy.energies, best.energies, atol=1e-9)


def test_points_of_disjoint_orthogonal_groups_find_their_group() -> None:
    atoms = np.linalg.qr(_atoms(9, 9, 0))[0]
    groups = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.uniform(1, 2, (10, 3)) @ atoms[group] for group in groups])
    sets = GreedyGroups(_available(groups), 3).choose(points.astype(np.float32), atoms)
    assert set(sets) == {frozenset(group) for group in groups}


def test_without_structure_it_is_plain_omp() -> None:
    points, atoms = _points(30, 12, 3), _atoms(20, 12, 3)
    sets = GreedyGroups(lambda _: range(20), 3).choose(points, atoms)
    for active, rows in sets.items():
        for row in rows:
            assert active == frozenset(reference.somp(points[row : row + 1], atoms, 3))


def test_the_subroutine_is_asked_once_for_each_set_of_a_step() -> None:
    asked: list[frozenset[int]] = []

    def available(active: frozenset[int]) -> range:
        asked.append(active)
        return range(8)

    GreedyGroups(available, 3).choose(_points(50, 6, 4), _atoms(8, 6, 4))
    assert len(asked) == len(set(asked))


def test_codes_and_energies_belong_together() -> None:
    points, atoms = _points(30, 6, 5), _atoms(10, 6, 5)
    groups = [[0, 1, 2], [2, 3], [4], [5, 6, 7, 8]]
    codes = GreedyGroups(_available(groups), 3).encode(points, atoms)
    z = reference.dense_codes(codes.atom_ids, codes.values, 10)
    np.testing.assert_allclose(((points - z @ atoms) ** 2).sum(axis=1), codes.energies, atol=1e-9)


def test_learning_with_the_subroutine_lowers_the_energy() -> None:
    """No promise at each step, the paper says, but here over all."""
    points = _points(300, 8, 6)
    groups = GreedyGroups(_available([range(i, i + 3) for i in range(0, 12, 2)]), 3)
    learned = learn_dictionary(points, groups, _atoms(14, 8, 6).astype(np.float32), 8)
    assert learned.energies[-1] < learned.energies[0]
