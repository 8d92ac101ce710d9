"""Algorithm 2 as a whole: it learns what was planted, and its error falls."""

import numpy as np

from service.engine.arrays import Float32Array
from service.engine.tree import Tree
from trainer.train import CodeSettings, learn_codes
from trainer.tree_building import TreeSettings, build_tree


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


def test_relative_error_is_that_of_the_coder_it_comes_with() -> None:
    points = np.abs(np.random.default_rng(2).normal(size=(500, 16))).astype(np.float32)
    tree = build_tree(points, TreeSettings(depth=3))
    learned = learn_codes(points, tree, CodeSettings(20, 3, 2), np.random.default_rng(0))
    codes = learned.coder.encode(points, tree.route(points))
    rebuilt = np.einsum("nm,nmd->nd", codes.values, learned.coder.dictionary[codes.atom_ids])
    error = ((points - rebuilt) ** 2).sum() / (points**2).sum()
    np.testing.assert_allclose(learned.relative_errors[-1], error, rtol=1e-4)


def test_duplicates_and_zeros_are_safe() -> None:
    points = np.repeat(np.eye(16, dtype=np.float32)[:5], 20, axis=0)
    points = np.concatenate([points, np.zeros((30, 16), np.float32)])
    tree = build_tree(points, TreeSettings(depth=4))
    learned = learn_codes(points, tree, CodeSettings(8, 3, 3), np.random.default_rng(0))
    assert np.isfinite(learned.coder.inverse_grams).all()
    assert np.isfinite(learned.coder.dictionary).all()
    assert np.isfinite(learned.relative_errors).all()
