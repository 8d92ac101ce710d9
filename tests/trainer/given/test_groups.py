"""Given groups: codes against least squares, an energy that never rises, and K-flats."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.arrays import Float32Array
from tests import reference
from trainer.errors import DataError
from trainer.given.groups import GivenGroups, disjoint_groups, given_groups, learn_dictionary
from trainer.learn.dictionary import first_dictionary

OVERLAPPING = [[0, 1, 2], [2, 3], [4], [1, 5, 6, 7], [0, 7]]
COSTS: list[list[float]] = [[0.1, 0, 2], [0.5, 0.5], [0], [1e-3, 10, 0.2, 0.1], [0, 0]]


def _points(n: int, width: int = 6, seed: int = 0) -> Float32Array:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def _first(points: Float32Array, n_atoms: int, seed: int = 0) -> Float32Array:
    return first_dictionary(points, n_atoms, np.random.default_rng(seed))


@pytest.mark.parametrize("costs", [None, COSTS])
def test_codes_are_those_of_the_best_group(costs: list[list[float]] | None) -> None:
    points, atoms = _points(40), _points(8, seed=1).astype(np.float64)
    codes = given_groups(OVERLAPPING, costs).encode(points, atoms)
    for x, energy, ids, values in zip(
        points, codes.energies, codes.atom_ids, codes.values, strict=True
    ):
        energies = [
            reference.smallest_energy(atoms[group], costs[row] if costs else [0] * len(group), x)
            for row, group in enumerate(OVERLAPPING)
        ]
        np.testing.assert_allclose(energy, min(energies), rtol=1e-9, atol=1e-12)
        best = int(np.argmin(energies))
        assert set(ids[values != 0]) <= set(OVERLAPPING[best])
        z = reference.dense_codes(ids[None], values[None], 8)[0]
        cost = sum(
            c * z[i] ** 2 for i, c in zip(OVERLAPPING[best], (costs or COSTS)[best], strict=True)
        )
        total = ((x - z @ atoms) ** 2).sum() + (cost if costs else 0)
        np.testing.assert_allclose(total, energy, rtol=1e-6, atol=1e-9)


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.integers(8, 40),
    st.lists(
        st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True), min_size=1, max_size=6
    ),
    st.sampled_from([0.0, 1e-3, 1.0]),
    st.sampled_from(["random", "duplicates", "zeros", "dependent"]),
)
def test_the_energy_never_rises(
    seed: int, n: int, groups: list[list[int]], cost: float, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    points = _points(n, seed=seed)
    if kind == "duplicates":
        points[: n // 2] = points[0]
    if kind == "zeros":
        points[::2] = 0
    dictionary = _first(points, 8, seed)
    if kind == "dependent":
        dictionary[1] = dictionary[0]
        dictionary[2] = -dictionary[3]
    costs = [[cost * float(rng.uniform()) for _ in group] for group in groups]
    learned = learn_dictionary(points, given_groups(groups, costs), dictionary, 4)
    energies = np.array(learned.energies)
    assert (np.diff(energies) <= 1e-7 * energies[0] + 1e-12).all()
    assert np.isfinite(learned.dictionary).all()
    assert np.isfinite(learned.codes.values).all()


def test_energies_are_those_of_the_dictionary_and_codes() -> None:
    points = _points(60)
    learned = learn_dictionary(points, given_groups(OVERLAPPING), _first(points, 8), 4)
    z = reference.dense_codes(learned.codes.atom_ids, learned.codes.values, 8)
    error = ((points - z @ learned.dictionary) ** 2).sum()
    np.testing.assert_allclose(learned.energies[-1], error, rtol=1e-6)
    assert len(learned.energies) == 5


def test_one_group_of_all_directions_loses_nothing() -> None:
    points = _points(30, width=4)
    learned = learn_dictionary(points, given_groups([range(4)]), _first(points, 4), 1)
    assert learned.energies[-1] < 1e-6


def test_without_costs_atoms_have_unit_norm() -> None:
    points = _points(60)
    free = learn_dictionary(points, given_groups(OVERLAPPING), _first(points, 8), 3)
    np.testing.assert_allclose(np.linalg.norm(free.dictionary, axis=1), 1)


@pytest.mark.parametrize("length", [1, 5])
def test_with_costs_atoms_never_grow_beyond_unit_norm(length: float) -> None:
    # They grew without end, to norms of 17 after 300 iterations, and the costs faded.
    points, costs = _points(60), [[0.5] * len(group) for group in OVERLAPPING]
    first = _first(points, 8) * np.float32(length)
    learned = learn_dictionary(points, given_groups(OVERLAPPING, costs), first, 60)
    assert np.linalg.norm(learned.dictionary, axis=1).max() <= 1 + 1e-9
    assert (np.diff(learned.energies) <= 1e-7 * learned.energies[0]).all()
    cost = 0.5 * (learned.codes.values**2).sum()
    assert cost > 0.2 * learned.energies[-1]


def test_update_with_costs_is_the_best_dictionary_of_bounded_norms() -> None:
    points, first = _points(60), _first(_points(60), 8)
    groups = given_groups(OVERLAPPING, COSTS)
    codes = groups.encode(points, first.astype(np.float64))
    z = reference.dense_codes(codes.atom_ids, codes.values, 8)
    best = reference.bounded_dictionary(points, z, first)
    updated = learn_dictionary(points, groups, first, 1).dictionary
    np.testing.assert_allclose(updated, best, atol=1e-4)


def test_a_dear_group_is_left_for_a_cheap_one() -> None:
    atoms = np.eye(3)
    points = np.array([[1, 0.9, 0]], np.float32)
    assert given_groups([[0], [1]]).choose(points, atoms) == [0]
    assert given_groups([[0], [1]], [[10], [0.1]]).choose(points, atoms) == [1]


def _planted_flats(seed: int) -> tuple[Float32Array, list[int]]:
    """Four planes in ten dimensions, 50 points each, hardly any noise."""
    rng = np.random.default_rng(seed)
    flats = [np.linalg.qr(rng.normal(size=(10, 2)))[0].T for _ in range(4)]
    points = np.concatenate([rng.normal(size=(50, 2)) @ flat for flat in flats])
    labels = [label for label in range(4) for _ in range(50)]
    return (points + 1e-3 * rng.normal(size=points.shape)).astype(np.float32), labels


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_k_flats_recovers_planted_subspaces(seed: int) -> None:
    """The best of four starts, as is usual for K-flats."""
    points, labels = _planted_flats(seed)
    groups = disjoint_groups(4, 2)
    starts = [learn_dictionary(points, groups, _first(points, 8, start), 12) for start in range(4)]
    best = min(starts, key=lambda learned: learned.energies[-1])
    found = groups.choose(points, best.dictionary)
    agreement = max(
        np.mean([names[group] == label for group, label in zip(found, labels, strict=True)])
        for names in permutations(range(4))
    )
    assert agreement > 0.97
    assert best.energies[-1] < 1e-2


@pytest.mark.parametrize("costs", [None, COSTS])
def test_the_engine_codes_by_given_groups_too(costs: list[list[float]] | None) -> None:
    points, groups = _points(60), given_groups(OVERLAPPING, costs)
    learned = learn_dictionary(points, groups, _first(points, 8), 3)
    group_ids = groups.choose(points, learned.dictionary)
    codes = groups.coder(learned.dictionary).encode(points, group_ids)
    np.testing.assert_allclose(codes.values, learned.codes.values, rtol=1e-2, atol=1e-3)


def test_all_zero_descriptors_have_zero_codes() -> None:
    zeros = np.zeros((9, 6), np.float32)
    learned = learn_dictionary(zeros, given_groups(OVERLAPPING), _first(_points(9), 8), 2)
    assert not learned.codes.values.any()
    assert learned.energies == (0, 0, 0)


@pytest.mark.parametrize(
    ("groups", "costs", "message"),
    [
        ([], None, "0 groups"),
        ([[0], []], None, "group 1 is"),
        ([[0, 0]], None, "group 0 is"),
        ([[-1]], None, "group 0 is"),
        ([[0, 1]], [[1.0]], "costs of group 0 are"),
        ([[0]], [[-1.0]], "costs of group 0 are"),
        ([[0]], [[float("nan")]], "costs of group 0 are"),
        ([[0]], [], "1 groups with 0 lists of costs"),
    ],
)
def test_wrong_groups_are_refused(
    groups: list[list[int]], costs: list[list[float]] | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        given_groups(groups, costs)


def test_groups_beyond_the_dictionary_are_refused() -> None:
    groups: GivenGroups = given_groups([[0, 9]])
    with pytest.raises(DataError, match="use atom 9, expected ids below 8"):
        learn_dictionary(_points(20), groups, _first(_points(20), 8), 1)
