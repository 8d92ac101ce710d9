"""What blocks of residuals learn: means that leave nothing over, and whitened projections."""

import numpy as np
import pytest

from service.engine.arrays import Float64Array
from service.engine.blocks import ResidualsBlock
from service.engine.config import ResidualsConfig
from service.engine.tree import Tree, norms_of
from tests.support.samples import random_dictionary
from trainer.learn.residuals import learn_residuals

CONFIG = ResidualsConfig(levels=(1, 2, 2), components=5, pyramid=(4, 2, 1))


@pytest.fixture(scope="module")
def learned() -> tuple[ResidualsBlock, list[tuple[Float64Array, Float64Array]]]:
    """A block, and for each of its means the node's directions (n, 128) and lengths (n,)."""
    rng = np.random.default_rng(0)
    # Few directions vary, each by its own extent, so that five components hold nearly all.
    spread = random_dictionary(rng, 5) * np.geomspace(0.5, 0.1, 5)[:, None]
    directions = random_dictionary(rng, 1) + rng.normal(size=(4000, 5)) @ spread
    directions += rng.normal(scale=0.002, size=directions.shape)
    lengths = rng.uniform(0.2, 1, len(directions)) / np.linalg.norm(directions, axis=1)
    descriptors = (directions * lengths[:, None]).astype(np.float32)
    tree = Tree.from_floats(random_dictionary(rng, 7), np.zeros(7, np.float32))
    leaf_ids, norms = tree.route(descriptors), norms_of(descriptors).astype(np.float64)
    nodes = [leaf_ids >> 2 == node for node in range(2)] + [leaf_ids >> 1 == n for n in range(4)]
    members = [(descriptors[own] / norms[own, None], norms[own]) for own in nodes]
    return learn_residuals(descriptors, tree, CONFIG), members


def test_residuals_of_the_training_data_add_up_to_nothing(
    learned: tuple[ResidualsBlock, list[tuple[Float64Array, Float64Array]]],
) -> None:
    block, members = learned
    assert block.means.shape == (6, 128)
    for mean, (directions, lengths) in zip(block.means, members, strict=True):
        total = lengths @ (directions - mean)
        assert np.abs(total).max() <= 1e-5 * lengths.sum()


def test_projected_residuals_have_a_variance_of_one_and_are_not_correlated(
    learned: tuple[ResidualsBlock, list[tuple[Float64Array, Float64Array]]],
) -> None:
    block, members = learned
    projections = block.projections * block.scales[:, None]
    for mean, projection, (directions, lengths) in zip(
        block.means, projections, members, strict=True
    ):
        projected = (directions - mean) @ projection
        covariance = (projected.T * lengths) @ projected / lengths.sum()
        # A tenth of the covariance is that of all nodes of the level.
        assert np.abs(covariance - np.eye(5)).max() <= 0.3
