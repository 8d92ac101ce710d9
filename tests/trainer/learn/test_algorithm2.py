"""Algorithm 2 as a whole: it learns what was planted, and its error falls."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from service.engine.arrays import Float32Array, Int32Array
from service.engine.coding import Coder
from service.engine.tree import Tree
from trainer.errors import DataError
from trainer.learn.algorithm2 import (
    CodeSettings,
    LearnedCodes,
    TrainingState,
    learn_codes,
    learn_groups,
)
from trainer.learn.dictionary import (
    DictionaryUpdate,
    first_dictionary,
    residual_energies,
    update_by_least_squares,
)
from trainer.learn.points import LocalPoints, replace_unused_atoms
from trainer.learn.somp import choose_active_sets, group_by_leaf
from trainer.learn.tree import TreeSettings, build_tree

wide_and_narrow = pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])


def _planted(n_groups: int, per_group: int) -> Float32Array:
    """Points in a few planes that lie in narrow, well separated cones."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(n_groups):
        first, second = np.linalg.qr(rng.normal(size=(16, 2)))[0].T
        parts.append(first + rng.uniform(-0.3, 0.3, (per_group, 1)) * second)
    return np.concatenate(parts).astype(np.float32)


def _learn(points: Float32Array, tree: Tree, iterations: int) -> tuple[float, ...]:
    settings = CodeSettings(n_atoms=16, nonzeros=2, iterations=iterations)
    return learn_codes(points, tree, settings, np.random.default_rng(0)).relative_errors


def test_planted_planes_are_learned_almost_without_error() -> None:
    points = _planted(8, 64)
    tree = build_tree(points, TreeSettings(depth=6))
    errors = _learn(points, tree, 10)
    assert errors[-1] < 0.01


def test_relative_error_falls() -> None:
    points = np.abs(np.random.default_rng(1).normal(size=(2000, 16))).astype(np.float32)
    errors = _learn(points, build_tree(points, TreeSettings(depth=5)), 6)
    assert errors[-1] < errors[0]


def test_narrow_atoms_cost_a_hundredth_of_the_error_at_the_most() -> None:
    points, errors = _positive(2000), []
    for wide in (True, False):
        tree = build_tree(points, TreeSettings(depth=5, wide=wide))
        settings = CodeSettings(16, 2, 6, wide=wide)
        learned = learn_codes(points, tree, settings, np.random.default_rng(0))
        errors.append(learned.relative_errors[-1])
    assert errors[1] < errors[0] * 1.01


@wide_and_narrow
def test_relative_error_is_that_of_the_coder_it_comes_with(*, wide: bool) -> None:
    points = np.abs(np.random.default_rng(2).normal(size=(500, 16))).astype(np.float32)
    tree = build_tree(points, TreeSettings(depth=3, wide=wide))
    settings = CodeSettings(20, 3, 2, wide=wide)
    learned = learn_codes(points, tree, settings, np.random.default_rng(0))
    codes = learned.coder.encode(points, tree.route(points))
    rebuilt = np.einsum("nm,nmd->nd", codes.values, learned.coder.dictionary[codes.atom_ids])
    error = ((points - rebuilt) ** 2).sum() / (points**2).sum()
    np.testing.assert_allclose(learned.relative_errors[-1], error, rtol=1e-4)


@wide_and_narrow
def test_duplicates_and_zeros_are_safe(*, wide: bool) -> None:
    points = np.repeat(np.eye(16, dtype=np.float32)[:5], 20, axis=0)
    points = np.concatenate([points, np.zeros((30, 16), np.float32)])
    tree = build_tree(points, TreeSettings(depth=4, wide=wide))
    settings = CodeSettings(8, 3, 3, wide=wide)
    learned = learn_codes(points, tree, settings, np.random.default_rng(0))
    assert np.isfinite(learned.coder.inverse_grams).all()
    assert np.isfinite(learned.coder.dictionary).all()
    assert np.isfinite(learned.relative_errors).all()


def _positive(n: int, seed: int = 1) -> Float32Array:
    return np.abs(np.random.default_rng(seed).normal(size=(n, 16))).astype(np.float32)


def _bits(coder: Coder) -> bytes:
    return coder.table.tobytes() + coder.dictionary.tobytes() + coder.inverse_grams.tobytes()


def _one_group_per_leaf(points: Float32Array, tree: Tree, settings: CodeSettings) -> Coder:
    """The classifier's special case of Algorithm 2, written out."""
    wide = settings.wide
    groups = group_by_leaf(points, tree.route(points), tree.n_leaves, wide=wide)
    x, leaf_ids = groups.descriptors, groups.leaf_ids
    dictionary = first_dictionary(x, settings.n_atoms, np.random.default_rng(0))
    for _ in range(settings.iterations):
        table = choose_active_sets(groups, dictionary, settings.nonzeros)
        codes = Coder.from_table(table, dictionary, wide=wide).encode(x, leaf_ids)
        dictionary = update_by_least_squares(x, codes, dictionary)
        coder = Coder.from_table(table, dictionary, wide=wide)
        residuals = residual_energies(x, coder.encode(x, leaf_ids), dictionary)
        energies = np.asarray(np.bincount(leaf_ids, residuals, len(table)), np.float64)
        dictionary = replace_unused_atoms(LocalPoints(groups), table, dictionary, energies)
    return coder


@wide_and_narrow
@pytest.mark.parametrize("n_atoms", [20, 300])  # all used, and most not used
def test_one_group_per_leaf_is_the_plain_loop_bit_for_bit(n_atoms: int, *, wide: bool) -> None:
    points = _positive(400)
    tree = build_tree(points, TreeSettings(depth=4, wide=wide))
    settings = CodeSettings(n_atoms, 3, 3, wide=wide)
    learned = learn_codes(points, tree, settings, np.random.default_rng(0))
    assert learned.coder.wide is wide
    assert _bits(learned.coder) == _bits(_one_group_per_leaf(points, tree, settings))


@pytest.mark.parametrize("n_groups", [1, 2, 7, 31])
@pytest.mark.parametrize("update", ["least-squares", "ksvd"])
def test_leaves_are_glued_into_that_many_groups(n_groups: int, update: DictionaryUpdate) -> None:
    points = _positive(1000)
    tree = build_tree(points, TreeSettings(depth=5))
    settings = CodeSettings(24, 3, 4, n_groups, update)
    states: list[TrainingState] = []
    learned = learn_codes(
        points, tree, settings, np.random.default_rng(0), after_iteration=states.append
    )
    group_ids = states[-1].group_ids
    assert group_ids is not None
    assert set(group_ids) == set(range(n_groups))
    assert learned.coder.table.shape == (32, 3)
    np.testing.assert_array_equal(learned.coder.table, states[-1].table[group_ids])
    assert learned.relative_errors[-1] < learned.relative_errors[0]


def test_more_groups_code_better() -> None:
    points = _positive(2000)
    tree = build_tree(points, TreeSettings(depth=6))
    errors = [
        learn_codes(
            points, tree, CodeSettings(24, 3, 5, n_groups), np.random.default_rng(0)
        ).relative_errors[-1]
        for n_groups in (1, 8, 64)
    ]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("update", ["least-squares", "ksvd"])
def test_groups_without_a_hash_find_planted_planes(update: DictionaryUpdate) -> None:
    points = _planted(8, 64)
    settings = CodeSettings(16, 2, 15, 12, update)
    learned = learn_groups(points, settings, np.random.default_rng(0))
    assert learned.relative_errors[-1] < 0.01
    assert set(learned.group_ids) == set(range(12))
    codes = learned.coder.encode(points, learned.group_ids)
    rebuilt = np.einsum("nm,nmd->nd", codes.values, learned.coder.dictionary[codes.atom_ids])
    error = ((points - rebuilt) ** 2).sum() / (points**2).sum()
    np.testing.assert_allclose(learned.relative_errors[-1], error, atol=1e-6)


def test_groups_without_a_hash_code_better_than_glued_leaves() -> None:
    points = _positive(1500)
    tree = build_tree(points, TreeSettings(depth=6))
    settings = CodeSettings(24, 3, 5, 20)
    free = learn_groups(points, settings, np.random.default_rng(0))
    glued = learn_codes(points, tree, settings, np.random.default_rng(0))
    assert free.relative_errors[-1] < glued.relative_errors[-1]


def _random(kind: str, n: int, width: int, rng: np.random.Generator) -> Float32Array:
    points = rng.normal(size=(n, width)).astype(np.float32)
    if kind == "duplicates":
        points[: n // 2] = points[0]
    if kind == "zeros":
        points[::2] = 0
    if kind == "a plane":
        points = (points[:, :2] @ rng.normal(size=(2, width))).astype(np.float32)
    return points


@hypothesis_settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(40, 120),
    n_groups=st.integers(1, 30),
    n_atoms=st.integers(3, 40),
    nonzeros=st.integers(1, 3),
    kind=st.sampled_from(["random", "duplicates", "zeros", "a plane"]),
    update=st.sampled_from(["least-squares", "ksvd"]),
    by=st.sampled_from(["leaves", "descriptors"]),
)
def test_the_error_of_learned_groups_never_rises(
    seed: int,
    n: int,
    n_groups: int,
    n_atoms: int,
    nonzeros: int,
    kind: str,
    update: DictionaryUpdate,
    by: str,
) -> None:
    """Not though SOMP is greedy, nor when unused atoms and groups are made anew."""
    points = _random(kind, n, 9, np.random.default_rng(seed))
    settings, rng = (
        CodeSettings(n_atoms, nonzeros, 5, n_groups, update),
        np.random.default_rng(seed),
    )
    if by == "leaves":
        tree = build_tree(points, TreeSettings(depth=5))
        errors = learn_codes(points, tree, settings, rng).relative_errors
    else:
        errors = learn_groups(points, settings, rng).relative_errors
    # Points of a plane make nearly dependent sets, whose float32 inverses are less exact.
    assert (np.diff(errors) <= (1e-4 if kind == "a plane" else 1e-5)).all()


def test_a_group_for_every_descriptor_is_allowed() -> None:
    points = _positive(30)
    learned = learn_groups(points, CodeSettings(10, 2, 2, 30), np.random.default_rng(0))
    np.testing.assert_array_equal(learned.group_ids, np.arange(30))


def test_ksvd_learns_planted_planes_too() -> None:
    points = _planted(8, 64)
    tree = build_tree(points, TreeSettings(depth=6))
    settings = CodeSettings(16, 2, 10, dictionary_update="ksvd")
    learned = learn_codes(points, tree, settings, np.random.default_rng(0))
    assert learned.relative_errors[-1] < 0.01


def _through_json(state: TrainingState) -> TrainingState:
    """As a file would keep it: arrays copied, the rest as text."""
    return replace(
        state,
        dictionary=state.dictionary.copy(),
        rng_state=json.loads(json.dumps(state.rng_state)),
        relative_errors=tuple(json.loads(json.dumps(state.relative_errors))),
    )


@pytest.mark.parametrize("stop", [1, 2, 4])
@pytest.mark.parametrize(
    "settings",
    [
        CodeSettings(20, 3, 4),
        CodeSettings(120, 3, 4),
        CodeSettings(20, 3, 4, dictionary_update="ksvd"),
        CodeSettings(20, 3, 4, groups=5),
        CodeSettings(100, 3, 4, groups=28, dictionary_update="ksvd"),
    ],
    ids=["plain", "most atoms unused", "K-SVD", "glued", "glued, K-SVD"],
)
def test_a_resumed_run_ends_with_the_same_bits(settings: CodeSettings, stop: int) -> None:
    points = _positive(300)
    tree = build_tree(points, TreeSettings(depth=5))
    states: list[TrainingState] = []
    whole = learn_codes(
        points, tree, settings, np.random.default_rng(0), after_iteration=states.append
    )
    resumed = learn_codes(
        points,
        tree,
        settings,
        np.random.default_rng(99),
        resume_from=_through_json(states[stop - 1]),
    )
    assert [state.iteration for state in states] == [1, 2, 3, 4]
    assert _bits(resumed.coder) == _bits(whole.coder)
    assert resumed.relative_errors == whole.relative_errors


def test_groups_without_a_hash_resume_with_the_same_bits() -> None:
    points, settings = _positive(300), CodeSettings(40, 3, 4, 25)
    states: list[TrainingState] = []
    whole = learn_groups(points, settings, np.random.default_rng(0), after_iteration=states.append)
    resumed = learn_groups(points, settings, np.random.default_rng(1), resume_from=states[1])
    assert _bits(resumed.coder) == _bits(whole.coder)
    np.testing.assert_array_equal(resumed.group_ids, whole.group_ids)


def test_an_interrupted_callback_leaves_a_state_to_resume_from() -> None:
    points = _positive(300)
    tree = build_tree(points, TreeSettings(depth=3))
    kept: list[TrainingState] = []

    def interrupt(state: TrainingState) -> None:
        kept.append(state)
        raise KeyboardInterrupt

    settings = CodeSettings(20, 3, 3)
    with pytest.raises(KeyboardInterrupt):
        learn_codes(points, tree, settings, np.random.default_rng(0), after_iteration=interrupt)
    resumed = learn_codes(points, tree, settings, np.random.default_rng(0), resume_from=kept[0])
    whole = learn_codes(points, tree, settings, np.random.default_rng(0))
    assert _bits(resumed.coder) == _bits(whole.coder)


def _state_of(settings: CodeSettings) -> tuple[Float32Array, Tree, TrainingState]:
    points = _positive(200)
    tree = build_tree(points, TreeSettings(depth=3))
    states: list[TrainingState] = []
    learn_codes(points, tree, settings, np.random.default_rng(0), after_iteration=states.append)
    return points, tree, states[-1]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (CodeSettings(21, 3, 2), "belongs to another run"),
        (CodeSettings(20, 2, 2), "belongs to another run"),
        (CodeSettings(20, 3, 2, groups=4), "belongs to another run"),
        (CodeSettings(20, 3, 1), "finished 2 iterations, expected at most 1"),
    ],
)
def test_a_state_of_another_run_is_refused(other: CodeSettings, message: str) -> None:
    points, tree, state = _state_of(CodeSettings(20, 3, 2))
    with pytest.raises(DataError, match=message):
        learn_codes(points, tree, other, np.random.default_rng(0), resume_from=state)


def test_a_state_cannot_be_changed_by_its_reader() -> None:
    _, _, state = _state_of(CodeSettings(20, 3, 1, groups=4))
    for array in (state.dictionary, state.table, state.group_ids):
        assert array is not None
        assert not array.flags.writeable


def test_every_iteration_logs_its_relative_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "trainer.learn.algorithm2"):
        _, _, state = _state_of(CodeSettings(20, 3, 2))
    assert caplog.messages == [
        f"iteration {i + 1}/2: relative error {error:.4f}"
        for i, error in enumerate(state.relative_errors)
    ]


@pytest.mark.parametrize("n_groups", [0, 9])
def test_a_wrong_number_of_groups_is_refused(n_groups: int) -> None:
    points = _positive(100)
    tree = build_tree(points, TreeSettings(depth=3))
    with pytest.raises(DataError, match=f"{n_groups} groups for 8 buckets, expected 1 to 8"):
        learn_codes(points, tree, CodeSettings(9, 2, 1, n_groups), np.random.default_rng(0))


def test_groups_without_a_hash_need_their_number() -> None:
    with pytest.raises(DataError, match="no number of groups"):
        learn_groups(_positive(100), CodeSettings(9, 2, 1), np.random.default_rng(0))


def test_more_nonzeros_than_atoms_are_refused() -> None:
    with pytest.raises(DataError, match="5 nonzeros are more than the 4 atoms"):
        CodeSettings(4, 5, 1)


@pytest.mark.parametrize("n_groups", [None, 3])
def test_more_atoms_than_descriptors_are_refused_by_learning(n_groups: int | None) -> None:
    points = _positive(50)
    tree = build_tree(points, TreeSettings(depth=3))
    with pytest.raises(DataError, match="50 descriptors are fewer than the 51 atoms"):
        learn_codes(points, tree, CodeSettings(51, 2, 1, n_groups), np.random.default_rng(0))


def test_more_atoms_than_descriptors_are_refused_without_a_hash() -> None:
    with pytest.raises(DataError, match="50 descriptors are fewer than the 51 atoms"):
        learn_groups(_positive(50), CodeSettings(51, 2, 1, 3), np.random.default_rng(0))


def _degenerate(kind: str) -> Float32Array:
    points = _positive(64)
    if kind == "all zero":
        points[:] = 0
    if kind == "all alike":
        points[:] = points[0]
    if kind == "zeros and duplicates":
        points[:20] = 0
        points[20:50] = points[20]
    return points


@pytest.mark.parametrize("kind", ["all zero", "all alike", "zeros and duplicates", "few per leaf"])
@pytest.mark.parametrize("n_groups", [None, 1, 3])
@pytest.mark.parametrize("update", ["least-squares", "ksvd"])
def test_degenerate_descriptors_are_safe(
    kind: str, n_groups: int | None, update: DictionaryUpdate
) -> None:
    points = _degenerate(kind)
    tree = build_tree(points, TreeSettings(depth=5))  # two descriptors a leaf, three nonzeros
    settings = CodeSettings(12, 3, 3, n_groups, update)
    learned = learn_codes(points, tree, settings, np.random.default_rng(0))
    _assert_finite(learned)
    if kind == "all zero":
        assert learned.relative_errors == (0, 0, 0)
    if kind == "all alike":
        assert learned.relative_errors[-1] < 1e-5


def _assert_finite(learned: LearnedCodes) -> None:
    for array in (learned.coder.dictionary, learned.coder.inverse_grams, learned.relative_errors):
        assert np.isfinite(array).all()
    rows: Int32Array = np.sort(learned.coder.table, axis=1)
    assert (np.diff(rows, axis=1) > 0).all()


@pytest.mark.parametrize("kind", ["all zero", "all alike", "zeros and duplicates"])
def test_degenerate_descriptors_without_a_hash_are_safe(kind: str) -> None:
    points = _degenerate(kind)
    learned = learn_groups(points, CodeSettings(12, 3, 3, 6), np.random.default_rng(0))
    assert np.isfinite(learned.coder.inverse_grams).all()
    assert np.isfinite(learned.coder.dictionary).all()
    assert np.isfinite(learned.relative_errors).all()
