"""Cells that share a tree get the pooled vectors that each would get alone."""

from pathlib import Path

import numpy as np
import pytest

from service.engine import Engine, EngineConfig, FeatureExtractor
from service.engine.blocks import CodesBlock
from service.engine.coding import Coder
from service.engine.config import CodesConfig, ViewConfig
from service.engine.tree import Tree
from trainer.exact.omp import OmpCoder, OmpExtractor
from trainer.reproduce.features import OmpFeatures, TreeFeatures
from trainer.reproduce.grams import gram_matrices, within_memory


def paper_config(depth: int, n_atoms: int, nonzeros: int) -> EngineConfig:
    return EngineConfig.of_codes(ViewConfig(depth), CodesConfig(n_atoms, nonzeros))


@pytest.fixture(scope="module")
def features(trained_bundle: Path) -> TreeFeatures:
    """The tree of a trained bundle with two coders, of two and of three nonzeros."""
    engine = Engine.load(trained_bundle)
    assert isinstance(engine.hash, Tree)
    coder, depth = engine.coder, engine.hash.depth
    fewer = Coder.from_table(coder.table[:, :2], coder.dictionary, wide=coder.wide)
    n_atoms = len(coder.dictionary)
    configs = (paper_config(depth, n_atoms, 3), paper_config(depth, n_atoms, 2))
    return TreeFeatures(engine.hash, (coder, fewer), configs)


@pytest.fixture(scope="module")
def paths(drawn_images: Path) -> list[Path]:
    return sorted(drawn_images.rglob("*.png"))[::4]


def test_pooled_vectors_are_those_of_the_engine(features: TreeFeatures, paths: list[Path]) -> None:
    data = paths[0].read_bytes()
    for place, pooled in enumerate(features.pooled(data)):
        config = features.configs[place]
        block = CodesBlock(config.codes, features.coders[place])
        engine = FeatureExtractor(config, [features.tree], [block])
        np.testing.assert_array_equal(pooled, engine.pooled_vector(data))


def test_some_of_the_cells_have_their_own_vectors(
    features: TreeFeatures, paths: list[Path]
) -> None:
    data = paths[0].read_bytes()
    (alone,) = features.only([1]).pooled(data)
    np.testing.assert_array_equal(alone, features.pooled(data)[1])


def test_gram_matrices_are_products_of_all_images_with_the_columns(
    features: TreeFeatures, paths: list[Path]
) -> None:
    columns = np.array([1, 4, 7])
    pooled = [features.pooled(path.read_bytes()) for path in paths]
    for place, gram in enumerate(gram_matrices(features, paths, columns)):
        rows = np.stack([vectors[place] for vectors in pooled])
        np.testing.assert_allclose(gram, rows @ rows[columns].T, atol=1e-6)


def test_omp_has_one_vector_and_one_tensor(features: TreeFeatures, paths: list[Path]) -> None:
    pytest.importorskip("spams", reason="needs spams-bin of the extra bench, absent here")
    coder = OmpCoder(features.coders[0].dictionary, 2)
    omp = OmpFeatures(OmpExtractor(paper_config(1, len(coder.dictionary), 2), coder))
    (pooled,) = omp.only([0]).pooled(paths[0].read_bytes())
    assert pooled.shape == (omp.widths[0],)
    assert np.linalg.norm(pooled) == pytest.approx(1, abs=1e-6)
    np.testing.assert_array_equal(omp.tensors(0)[0], coder.dictionary)


@pytest.mark.parametrize(
    ("widths", "runs"),
    [((), []), ((9,), [(0, 1)]), ((1, 1, 3, 9, 1), [(0, 2), (2, 3), (3, 4), (4, 5)])],
)
def test_what_cannot_be_held_together_comes_in_runs(
    widths: tuple[int, ...], runs: list[tuple[int, int]]
) -> None:
    n_columns = 2**30 // 4 + 1  # so that a width of four is just too much
    found = within_memory(widths, n_columns)
    assert [(run.start, run.stop) for run in found] == runs
