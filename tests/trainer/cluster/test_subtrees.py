"""Learning on a cluster against one machine, the oracle."""

from collections.abc import Iterator

import numpy as np
import pytest

from service.engine.arrays import Float32Array
from service.engine.config import ResidualsConfig
from service.engine.tree import Tree
from trainer.cluster import subtrees
from trainer.cluster.residuals import learn_scattered_residuals
from trainer.cluster.sampling import ScatteredSample
from trainer.cluster.subtrees import (
    ScatteredPoints,
    ScatteredTree,
    grow_scattered_below,
    grow_scattered_tree,
)
from trainer.cluster.tasks import Tasks
from trainer.errors import ConfigError, DataError
from trainer.learn import tree as tree_module
from trainer.learn.algorithm2 import CodeSettings, learn_codes, learn_codes_of
from trainer.learn.residuals import learn_residuals
from trainer.learn.tree import TreeSettings, build_tree, grow_tree

SETTINGS = TreeSettings(depth=6)


def _descriptors(n: int, seed: int = 0) -> Float32Array:
    """Around eight directions, of any length, a few of none."""
    rng = np.random.default_rng(seed)
    points = np.abs(rng.normal(size=(8, 128)))[rng.integers(8, size=n)]
    points += 0.5 * np.abs(rng.normal(size=(n, 128)))
    points *= rng.uniform(0, 2, (n, 1))
    points[::101] = 0
    return points.astype(np.float32)


def _scattered(tasks: Tasks, descriptors: Float32Array, n_parts: int) -> ScatteredSample:
    parts = np.array_split(descriptors, n_parts)
    return ScatteredSample([tasks.given(part) for part in parts], tuple(map(len, parts)))


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_module, "_PER_SUBTREE", 300)
        patch.setattr(tree_module, "_TOP_SAMPLE", 700)
        patch.setattr(subtrees, "_AT_A_TIME", 5)
        yield


@pytest.fixture(scope="module")
def descriptors() -> Float32Array:
    return _descriptors(3000)


@pytest.fixture(scope="module")
def grown(tasks: Tasks, descriptors: Float32Array, _small: None) -> ScatteredTree:
    return grow_scattered_tree(tasks, _scattered(tasks, descriptors, 5), SETTINGS)


@pytest.fixture(scope="module")
def oracle(descriptors: Float32Array, _small: None) -> Tree:
    return build_tree(descriptors, SETTINGS)


def test_the_tree_is_that_of_one_machine(
    grown: ScatteredTree, oracle: Tree, descriptors: Float32Array
) -> None:
    assert (grown.top_depth, len(grown.subtrees)) == (4, 16)
    np.testing.assert_array_equal(grown.tree.directions, oracle.directions)
    np.testing.assert_array_equal(grown.tree.cuts, oracle.cuts)
    np.testing.assert_array_equal(grown.counts, np.bincount(oracle.route(descriptors), None, 64))


@pytest.mark.parametrize("n_atoms", [40, 400])  # all used, and most not used
def test_table_dictionary_and_errors_are_those_of_one_machine(
    tasks: Tasks, grown: ScatteredTree, oracle: Tree, descriptors: Float32Array, n_atoms: int
) -> None:
    settings = CodeSettings(n_atoms, nonzeros=3, iterations=3)
    points = ScatteredPoints(tasks, grown)
    found = learn_codes_of(points, settings, np.random.default_rng(0))
    expected = learn_codes(descriptors, oracle, settings, np.random.default_rng(0))
    np.testing.assert_array_equal(found.coder.table, expected.coder.table)
    np.testing.assert_allclose(found.coder.dictionary, expected.coder.dictionary, atol=1e-5)
    np.testing.assert_allclose(found.relative_errors, expected.relative_errors, rtol=1e-6)


# Below the subtrees' roots, at them, and above, where a node has several workers.
@pytest.mark.parametrize("levels", [(5, 6), (4, 4), (2, 0)])
def test_residuals_are_those_of_one_machine(
    tasks: Tasks,
    grown: ScatteredTree,
    oracle: Tree,
    descriptors: Float32Array,
    levels: tuple[int, int],
) -> None:
    config = ResidualsConfig(levels, 5, (2, 1))
    found = learn_scattered_residuals(tasks, grown, config)
    expected = learn_residuals(descriptors, oracle, config)
    np.testing.assert_allclose(found.means, expected.means, atol=1e-6)
    np.testing.assert_allclose(found.scales, expected.scales, rtol=1e-3)
    # Directions have no sign, and a number may be rounded to the next integer.
    own, others = (block.projections.astype(np.int32) for block in (found, expected))
    signs = np.sign((own * others).sum(axis=1, keepdims=True))
    assert np.abs(own - signs * others).max() <= 1


@pytest.mark.parametrize("n_parts", [1, 8])
def test_nothing_depends_on_how_descriptors_are_parted(
    tasks: Tasks, grown: ScatteredTree, descriptors: Float32Array, n_parts: int
) -> None:
    other = grow_scattered_tree(tasks, _scattered(tasks, descriptors, n_parts), SETTINGS)
    np.testing.assert_array_equal(other.tree.directions, grown.tree.directions)
    settings = CodeSettings(40, 3, 2)
    one, two = (
        learn_codes_of(ScatteredPoints(tasks, tree), settings, np.random.default_rng(0)).coder
        for tree in (grown, other)
    )
    assert one.dictionary.tobytes() == two.dictionary.tobytes()


def test_a_subtree_without_descriptors_takes_the_active_set_before_it(tasks: Tasks) -> None:
    points = _descriptors(900)
    top = grow_tree(points, TreeSettings(depth=2))
    kept = points[top.route(points) != 2]
    grown = grow_scattered_below(tasks, _scattered(tasks, kept, 2), TreeSettings(depth=3), top)
    assert not grown.counts[4:6].any()
    table = ScatteredPoints(tasks, grown).active_sets(np.eye(128, dtype=np.float32), 3)
    np.testing.assert_array_equal(table[4:6], table[[3, 3]])
    assert not np.array_equal(table[3], table[6])


def test_more_leaves_than_descriptors_are_rejected(tasks: Tasks) -> None:
    sample = _scattered(tasks, _descriptors(60), 2)
    with pytest.raises(DataError, match="60 descriptors are fewer than the 64 leaves"):
        grow_scattered_tree(tasks, sample, SETTINGS)


def test_ksvd_is_rejected(tasks: Tasks, grown: ScatteredTree) -> None:
    settings = CodeSettings(40, 3, 1, dictionary_update="ksvd")
    with pytest.raises(ConfigError, match="'ksvd' on a cluster, expected least-squares"):
        learn_codes_of(ScatteredPoints(tasks, grown), settings, np.random.default_rng(0))


def test_leaves_that_share_groups_are_rejected(tasks: Tasks, grown: ScatteredTree) -> None:
    settings = CodeSettings(40, 3, 1, groups=5)
    with pytest.raises(DataError, match="only where all descriptors are in one place"):
        learn_codes_of(ScatteredPoints(tasks, grown), settings, np.random.default_rng(0))
