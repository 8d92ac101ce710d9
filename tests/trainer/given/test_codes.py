"""Given groups from a file to a coder for leaves: which atoms a leaf uses, and its error."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from service.engine.arrays import Float32Array
from service.engine.tree import Tree
from tests.support.given_groups import OVERLAPPING, points_of, write_json
from trainer.given.codes import learn_given_codes
from trainer.given.file import GroupSearch, GroupsFile, read_groups
from trainer.given.groups import disjoint_groups
from trainer.learn.algorithm2 import CodeSettings, LearnedCodes
from trainer.learn.tree import TreeSettings, build_tree

wide_and_narrow = pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])


def _learn(points: Float32Array, tree: Tree, file: GroupsFile, iterations: int = 4) -> LearnedCodes:
    codes = CodeSettings(file.n_atoms, file.nonzeros, iterations, wide=tree.wide)
    rng = np.random.default_rng(0)
    return learn_given_codes(points, tree, read_groups(file), codes, rng)


@wide_and_narrow
@pytest.mark.parametrize("search", ["exhaustive", "greedy"])
def test_every_leaf_uses_atoms_of_one_given_group(
    tmp_path: Path, search: GroupSearch, *, wide: bool
) -> None:
    points = points_of()
    tree = build_tree(points, TreeSettings(depth=4, wide=wide))
    file = GroupsFile(write_json(tmp_path / "g.json", OVERLAPPING), 8, 3, search)
    coder = _learn(points, tree, file).coder
    assert coder.wide is wide
    assert coder.table.shape == (16, 3)
    for row, inverse in zip(coder.table, coder.inverse_grams, strict=True):
        assert len(set(row)) == 3  # as a bundle wants it
        used = {int(atom) for atom, place in zip(row, inverse, strict=True) if place.any()}
        assert any(used <= set(group) for group in OVERLAPPING)


@wide_and_narrow
@pytest.mark.parametrize("search", ["exhaustive", "greedy"])
def test_the_last_error_is_that_of_the_coder(
    tmp_path: Path, search: GroupSearch, *, wide: bool
) -> None:
    points = points_of()
    tree = build_tree(points, TreeSettings(depth=4, wide=wide))
    file = GroupsFile(write_json(tmp_path / "g.json", OVERLAPPING), 8, 3, search)
    learned = _learn(points, tree, file)
    codes = learned.coder.encode(points, tree.route(points))
    rebuilt = np.einsum("nm,nmd->nd", codes.values, learned.coder.dictionary[codes.atom_ids])
    error = ((points - rebuilt) ** 2).sum() / (points**2).sum()
    # The dictionary is learned before it is rounded, to steps of a hundredth.
    np.testing.assert_allclose(learned.relative_errors[-1], error, rtol=1e-3 if wide else 1e-2)
    assert len(learned.relative_errors) == 4


def test_costs_shrink_the_codes(tmp_path: Path) -> None:
    points = points_of()
    tree = build_tree(points, TreeSettings(depth=4))
    energies = []
    for cost in (0.0, 5.0):
        document = {"groups": OVERLAPPING, "costs": [[cost] * len(g) for g in OVERLAPPING]}
        file = GroupsFile(write_json(tmp_path / "g.json", document), 8, 3)
        coder = _learn(points, tree, file, 1).coder
        codes = coder.encode(points, tree.route(points))
        rebuilt = np.einsum("nm,nmd->nd", codes.values, coder.dictionary[codes.atom_ids])
        energies.append(float((rebuilt**2).sum()))
    assert energies[1] < 0.8 * energies[0]


def test_disjoint_groups_are_k_flats_whose_leaves_find_planted_subspaces(tmp_path: Path) -> None:
    """Narrow cones, so that a leaf holds points of one plane; the best of five starts."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(4):
        first, second = np.linalg.qr(rng.normal(size=(10, 2)))[0].T
        parts.append(first + rng.uniform(-0.2, 0.2, (100, 1)) * second)
    points = np.concatenate(parts).astype(np.float32)
    tree = build_tree(points, TreeSettings(depth=4))
    file = GroupsFile(write_json(tmp_path / "g.json", disjoint_groups(4, 2).table.tolist()), 8, 2)
    starts = [
        learn_given_codes(
            points, tree, read_groups(file), CodeSettings(8, 2, 10), np.random.default_rng(start)
        )
        for start in range(5)
    ]
    best = min(starts, key=lambda learned: learned.relative_errors[-1])
    assert best.relative_errors[-1] < 0.01
    assert {tuple(row) for row in best.coder.table.tolist()} == {(0, 1), (2, 3), (4, 5), (6, 7)}


def test_very_many_groups_are_searched_greedily(tmp_path: Path) -> None:
    points = points_of()
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
    points = points_of(64)
    if kind == "all zero":
        points[:] = 0
    if kind == "all alike":
        points[:] = points[0]
    points[:20] *= kind != "zeros among others"
    tree = build_tree(points, TreeSettings(depth=5))
    file = GroupsFile(write_json(tmp_path / "g.json", OVERLAPPING), 8, 3, search)
    learned = _learn(points, tree, file)
    for array in (learned.coder.inverse_grams, learned.coder.dictionary, learned.relative_errors):
        assert np.isfinite(array).all()
