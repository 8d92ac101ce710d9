"""The descriptors of a leaf choose together, among listed groups or greedily."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from tests.support.given_groups import COSTS, OVERLAPPING, buckets_of, points_of, unit_atoms
from trainer.given.greedy import GreedyGroups, available_in
from trainer.given.groups import given_groups, learn_together
from trainer.learn.dictionary import first_dictionary
from trainer.learn.somp import group_by_leaf

groups_of_atoms = st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True), min_size=1, max_size=8
)


@pytest.mark.parametrize("costs", [None, COSTS])
def test_a_leaf_chooses_the_group_of_the_smallest_summed_energy(
    costs: list[list[float]] | None,
) -> None:
    points, atoms = points_of(60), unit_atoms(8, 10)
    buckets = buckets_of(points, 7)
    chosen = given_groups(OVERLAPPING, costs).choose_together(buckets, atoms)
    for leaf in range(7):
        energies = [
            sum(
                reference.smallest_energy(
                    atoms[group], costs[row] if costs else [0] * len(group), x
                )
                for x in buckets.descriptors[buckets.members(leaf)]
            )
            for row, group in enumerate(OVERLAPPING)
        ]
        assert chosen[leaf] == int(np.argmin(energies))


@settings(max_examples=20)
@given(st.integers(0, 10_000), groups_of_atoms, st.integers(1, 12), st.sampled_from([0.0, 0.5]))
def test_the_energy_never_rises_when_buckets_choose(
    seed: int, groups: list[list[int]], n_leaves: int, cost: float
) -> None:
    points = points_of(50, seed=seed)
    points[::7] = 0
    first = first_dictionary(points, 10, np.random.default_rng(seed))
    structure = given_groups(groups, [[cost] * len(group) for group in groups])
    energies = learn_together(buckets_of(points, n_leaves), structure, first, 4).energies
    assert (np.diff(energies) <= 1e-7 * energies[0] + 1e-12).all()


def test_a_bucket_of_one_point_chooses_greedily_as_the_point_alone() -> None:
    points, atoms = points_of(30), unit_atoms(8, 10)
    greedy = GreedyGroups(available_in(given_groups(OVERLAPPING)), 3)
    buckets = group_by_leaf(points, np.arange(30, dtype=np.int32), 30)
    alone, together = greedy.choose(points, atoms), greedy.choose_together(buckets, atoms)
    assert {active: sorted(rows) for active, rows in alone.items()} == {
        active: sorted(leaves) for active, leaves in together.items()
    }


def test_without_structure_a_bucket_chooses_by_somp() -> None:
    points, atoms = points_of(80), unit_atoms(12, 10)
    buckets = buckets_of(points, 5)
    sets = GreedyGroups(lambda _: range(12), 3).choose_together(buckets, atoms)
    for active, leaves in sets.items():
        for leaf in leaves:
            members = buckets.descriptors[buckets.members(leaf)]
            assert active == frozenset(reference.somp(members, atoms, 3))


@settings(max_examples=40)
@given(groups_of_atoms, st.frozensets(st.integers(0, 9), max_size=3))
def test_available_atoms_are_the_union_of_the_groups_around(
    groups: list[list[int]], active: frozenset[int]
) -> None:
    expected = {atom for group in groups if active <= set(group) for atom in group}
    assert set(available_in(given_groups(groups))(active)) == expected
