"""Given groups from a file to a coder for leaves: who chooses what, and what is refused."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.arrays import Float32Array, Float64Array
from service.engine.tree import Tree
from tests import reference
from trainer.dictionary import first_dictionary
from trainer.errors import ConfigError
from trainer.given_codes import GroupSearch, GroupsFile, learn_given_codes, read_groups
from trainer.greedy_groups import GreedyGroups, available_in
from trainer.groups import disjoint_groups, given_groups, learn_together
from trainer.somp import LeafGroups, group_by_leaf
from trainer.train import CodeSettings, LearnedCodes
from trainer.tree_building import TreeSettings, build_tree

OVERLAPPING = [[0, 1, 2], [2, 3, 4], [5, 6], [1, 6, 7], [0, 7], [4]]
COSTS = [[0.1, 0, 0.2], [0.5, 0.5, 0], [0, 0], [0.01, 1, 0.2], [0, 0], [0.3]]

groups_of_atoms = st.lists(
    st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True), min_size=1, max_size=8
)


def _points(n: int = 400, width: int = 10, seed: int = 0) -> Float32Array:
    return np.abs(np.random.default_rng(seed).normal(size=(n, width))).astype(np.float32)


def _buckets(points: Float32Array, n_leaves: int, seed: int = 0) -> LeafGroups:
    leaf_ids = np.random.default_rng(seed).integers(0, n_leaves, len(points))
    return group_by_leaf(points, leaf_ids.astype(np.int32), n_leaves)


def _atoms(n: int, width: int, seed: int = 1) -> Float64Array:
    atoms = np.random.default_rng(seed).normal(size=(n, width))
    units: Float64Array = atoms / np.linalg.norm(atoms, axis=1, keepdims=True)
    return units


def _write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document), "utf-8")
    return path


def _learn(points: Float32Array, tree: Tree, file: GroupsFile, iterations: int = 4) -> LearnedCodes:
    codes = CodeSettings(file.n_atoms, file.nonzeros, iterations)
    rng = np.random.default_rng(0)
    return learn_given_codes(points, tree, read_groups(file), codes, rng)


@pytest.mark.parametrize("costs", [None, COSTS])
def test_a_leaf_chooses_the_group_of_the_smallest_summed_energy(
    costs: list[list[float]] | None,
) -> None:
    points, atoms = _points(60), _atoms(8, 10)
    buckets = _buckets(points, 7)
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


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), groups_of_atoms, st.integers(1, 12), st.sampled_from([0.0, 0.5]))
def test_the_energy_never_rises_when_buckets_choose(
    seed: int, groups: list[list[int]], n_leaves: int, cost: float
) -> None:
    points = _points(50, seed=seed)
    points[::7] = 0
    first = first_dictionary(points, 10, np.random.default_rng(seed))
    structure = given_groups(groups, [[cost] * len(group) for group in groups])
    energies = learn_together(_buckets(points, n_leaves), structure, first, 5).energies
    assert (np.diff(energies) <= 1e-7 * energies[0] + 1e-12).all()


@pytest.mark.parametrize("search", ["exhaustive", "greedy"])
def test_every_leaf_uses_atoms_of_one_given_group(tmp_path: Path, search: GroupSearch) -> None:
    points = _points()
    tree = build_tree(points, TreeSettings(depth=4))
    file = GroupsFile(_write(tmp_path / "g.json", OVERLAPPING), 8, 3, search)
    coder = _learn(points, tree, file).coder
    assert coder.table.shape == (16, 3)
    for row, inverse in zip(coder.table, coder.inverse_grams, strict=True):
        assert len(set(row)) == 3  # as a bundle wants it
        used = {int(atom) for atom, place in zip(row, inverse, strict=True) if place.any()}
        assert any(used <= set(group) for group in OVERLAPPING)


@pytest.mark.parametrize("search", ["exhaustive", "greedy"])
def test_the_last_error_is_that_of_the_coder(tmp_path: Path, search: GroupSearch) -> None:
    points = _points()
    tree = build_tree(points, TreeSettings(depth=4))
    file = GroupsFile(_write(tmp_path / "g.json", OVERLAPPING), 8, 3, search)
    learned = _learn(points, tree, file)
    codes = learned.coder.encode(points, tree.route(points))
    rebuilt = np.einsum("nm,nmd->nd", codes.values, learned.coder.dictionary[codes.atom_ids])
    error = ((points - rebuilt) ** 2).sum() / (points**2).sum()
    np.testing.assert_allclose(learned.relative_errors[-1], error, rtol=1e-3)
    assert len(learned.relative_errors) == 4


def test_costs_shrink_the_codes(tmp_path: Path) -> None:
    points = _points()
    tree = build_tree(points, TreeSettings(depth=4))
    energies = []
    for cost in (0.0, 5.0):
        document = {"groups": OVERLAPPING, "costs": [[cost] * len(g) for g in OVERLAPPING]}
        file = GroupsFile(_write(tmp_path / "g.json", document), 8, 3)
        coder = _learn(points, tree, file, 1).coder
        codes = coder.encode(points, tree.route(points))
        rebuilt = np.einsum("nm,nmd->nd", codes.values, coder.dictionary[codes.atom_ids])
        energies.append(float((rebuilt**2).sum()))
    assert energies[1] < 0.8 * energies[0]


def test_disjoint_groups_are_k_flats_whose_leaves_find_planted_subspaces(tmp_path: Path) -> None:
    """Narrow cones, so that a leaf holds points of one plane; the best of ten starts."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(4):
        first, second = np.linalg.qr(rng.normal(size=(10, 2)))[0].T
        parts.append(first + rng.uniform(-0.2, 0.2, (100, 1)) * second)
    points = np.concatenate(parts).astype(np.float32)
    tree = build_tree(points, TreeSettings(depth=4))
    file = GroupsFile(_write(tmp_path / "g.json", disjoint_groups(4, 2).table.tolist()), 8, 2)
    starts = [
        learn_given_codes(
            points, tree, read_groups(file), CodeSettings(8, 2, 10), np.random.default_rng(start)
        )
        for start in range(10)
    ]
    best = min(starts, key=lambda learned: learned.relative_errors[-1])
    assert best.relative_errors[-1] < 0.01
    assert {tuple(row) for row in best.coder.table.tolist()} == {(0, 1), (2, 3), (4, 5), (6, 7)}


def test_a_bucket_of_one_point_chooses_greedily_as_the_point_alone() -> None:
    points, atoms = _points(30), _atoms(8, 10)
    greedy = GreedyGroups(available_in(given_groups(OVERLAPPING)), 3)
    buckets = group_by_leaf(points, np.arange(30, dtype=np.int32), 30)
    alone, together = greedy.choose(points, atoms), greedy.choose_together(buckets, atoms)
    assert {active: sorted(rows) for active, rows in alone.items()} == {
        active: sorted(leaves) for active, leaves in together.items()
    }


def test_without_structure_a_bucket_chooses_by_somp() -> None:
    points, atoms = _points(80), _atoms(12, 10)
    buckets = _buckets(points, 5)
    sets = GreedyGroups(lambda _: range(12), 3).choose_together(buckets, atoms)
    for active, leaves in sets.items():
        for leaf in leaves:
            members = buckets.descriptors[buckets.members(leaf)]
            assert active == frozenset(reference.somp(members, atoms, 3))


@settings(deadline=None, max_examples=40)
@given(groups_of_atoms, st.frozensets(st.integers(0, 9), max_size=3))
def test_available_atoms_are_the_union_of_the_groups_around(
    groups: list[list[int]], active: frozenset[int]
) -> None:
    expected = {atom for group in groups if active <= set(group) for atom in group}
    assert set(available_in(given_groups(groups))(active)) == expected


def test_very_many_groups_are_searched_greedily(tmp_path: Path) -> None:
    points = _points()
    tree = build_tree(points, TreeSettings(depth=4))
    groups = np.array(list(combinations(range(24), 3)))  # 2024
    np.save(tmp_path / "g.npy", groups)
    learned = [
        _learn(points, tree, GroupsFile(tmp_path / "g.npy", 24, 3, search), 3)
        for search in ("exhaustive", "greedy")
    ]
    best, greedy = (codes.relative_errors[-1] for codes in learned)
    assert best <= greedy < 1.1 * best


@pytest.mark.parametrize("search", ["exhaustive", "greedy"])
@pytest.mark.parametrize("kind", ["all zero", "all alike", "zeros among others"])
def test_degenerate_descriptors_are_safe(tmp_path: Path, search: GroupSearch, kind: str) -> None:
    points = _points(64)
    if kind == "all zero":
        points[:] = 0
    if kind == "all alike":
        points[:] = points[0]
    points[:20] *= kind != "zeros among others"
    tree = build_tree(points, TreeSettings(depth=5))
    file = GroupsFile(_write(tmp_path / "g.json", OVERLAPPING), 8, 3, search)
    learned = _learn(points, tree, file)
    for array in (learned.coder.inverse_grams, learned.coder.dictionary, learned.relative_errors):
        assert np.isfinite(array).all()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([[0, 8]], "group 0 names atom 8, expected ids from 0 to 7 for 8 atoms"),
        ([[0], [0, 1, 2, 3]], "group 1 has 4 atoms, expected at most the 3 nonzeros"),
        ([[0, 0]], r"group 0 is \[0, 0\], expected different atom ids"),
        ([[-1]], "group 0 is"),
        ([], "0 groups"),
        ([[]], "group 0 is"),
        ([[0.5]], "does not hold lists of whole numbers"),
        ([[True]], "does not hold lists of whole numbers"),
        ([0, 1], "does not hold lists of whole numbers"),
        ("text", "does not hold lists of whole numbers"),
        ({"grups": [[0]]}, r"has the members \['grups'\], expected a JSON list"),
        ({"groups": [[0]], "costs": 3}, "'costs' is not a list of lists of numbers"),
        ({"groups": [[0]], "costs": [[1, 2]]}, "costs of group 0 are"),
        ({"groups": [[0]], "costs": [[-1]]}, "costs of group 0 are"),
    ],
)
def test_groups_that_do_not_fit_are_refused(tmp_path: Path, document: object, message: str) -> None:
    path = _write(tmp_path / "g.json", document)
    with pytest.raises(ConfigError, match=message) as refusal:
        read_groups(GroupsFile(path, 8, 3))
    assert str(path) in str(refusal.value)


def test_costs_and_greed_do_not_go_together(tmp_path: Path) -> None:
    path = _write(tmp_path / "g.json", {"groups": [[0]], "costs": [[1]]})
    with pytest.raises(ConfigError, match="greedy search of groups does not know"):
        read_groups(GroupsFile(path, 8, 3, "greedy"))


@pytest.mark.parametrize("name", ["g.json", "g.npy"])
def test_files_that_are_no_groups_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_groups(GroupsFile(tmp_path / name, 8, 3))
    (tmp_path / name).write_bytes(b"[[1, 2")
    with pytest.raises(ConfigError, match="cannot be read as groups"):
        read_groups(GroupsFile(tmp_path / name, 8, 3))


def test_an_array_of_fractions_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.zeros((3, 2)))
    with pytest.raises(ConfigError, match="whole numbers"):
        read_groups(GroupsFile(tmp_path / "g.npy", 8, 3))


def test_atoms_in_no_group_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_groups(GroupsFile(_write(tmp_path / "g.json", [[0, 1], [2]]), 8, 3))
    assert "5 of the 8 atoms are in no group and stay unused" in caplog.text
