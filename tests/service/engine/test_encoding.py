"""Routing and coding in one pass against the two apart, at random and on images that we have."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from service.engine import Codes, Engine, EngineConfig, Stopwatch, pooling, sift, strips
from service.engine.arrays import Float32Array
from service.engine.coding import Coder
from service.engine.config import CodesConfig, ResidualsConfig, ViewConfig
from service.engine.encoding import Outputs, TreeCoder, encode_by_tree
from service.engine.fixedpoint import Descriptors
from service.engine.image import Picture
from service.engine.threads import ONE_THREAD
from service.engine.tree import Tree
from service.engine.views import View
from service.settings import EMBEDDED_MODELS
from tests.support.samples import (
    AWKWARD_COUNTS,
    PROPERTY,
    random_bundle,
    random_descriptors,
    random_dictionary,
    random_png,
    random_table,
)
from trainer.bench.photographs import make_photographs
from trainer.bench.settings import BenchSettings

EXAMPLES = Path(__file__).parents[3] / "service" / "examples"

# The smallest image, one pixel more, numbers of descriptors around a block, the largest.
SIZES = [(20, 20), (21, 20), (23, 52), (52, 23), (97, 61), (300, 201)]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(EMBEDDED_MODELS / "caltech101" / "1")


@pytest.fixture(scope="module")
def photograph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise with the spectrum of a photograph, shapes before it, as a JPEG file."""
    folder = tmp_path_factory.mktemp("made") / "photographs"
    (path,) = make_photographs(folder, BenchSettings(made=1), (300, 201))
    return path


def _gray(path: Path, size: tuple[int, int]) -> Float32Array:
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("L").resize(size, Image.Resampling.BILINEAR))
    return (pixels / np.float32(255)).astype(np.float32)


def _apart(engine: Engine, descriptors: Descriptors) -> Codes:
    return engine.coder.encode(descriptors, engine.hash.route(descriptors))


def _assert_same(found: Codes, expected: Codes) -> None:
    np.testing.assert_array_equal(found.leaf_ids, expected.leaf_ids)
    np.testing.assert_array_equal(found.atom_ids, expected.atom_ids)
    np.testing.assert_array_equal(found.values, expected.values)


def _with_stride(view: View, stride: int) -> View:
    assert view.codes is not None
    config = replace(view.codes.config, stride=stride)
    return replace(view, codes=replace(view.codes, config=config))


@pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])
@PROPERTY
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.sampled_from(AWKWARD_COUNTS),
    nonzeros=st.integers(0, 7),
    depth=st.integers(1, 7),
)
def test_one_pass_gives_the_bits_of_two(
    seed: int, count: int, nonzeros: int, depth: int, *, wide: bool
) -> None:
    rng, nodes = np.random.default_rng(seed), 2**depth - 1
    thresholds = rng.normal(size=nodes).astype(np.float32)
    tree = Tree.from_floats(random_descriptors(rng, nodes), thresholds, wide=wide)
    table = random_table(rng, tree.n_leaves, 16, max(nonzeros, 1))
    coder = Coder.from_table(table, random_dictionary(rng, 16), wide=wide)
    rows = random_descriptors(rng, count, signs=wide)
    rows[count // 2 : count // 2 + 1] = 0
    descriptors, outputs = Descriptors.of(rows), Outputs.of_list(count, nonzeros)
    encode_by_tree(descriptors, TreeCoder(tree, coder if nonzeros else None), outputs)
    leaf_ids, fixed = tree.route(descriptors), descriptors.fixed(wide=wide)
    np.testing.assert_array_equal(outputs.codes.leaf_ids, leaf_ids)
    np.testing.assert_array_equal(outputs.written.steps, fixed.steps)
    np.testing.assert_array_equal(outputs.written.norms, fixed.norms)
    if nonzeros:
        _assert_same(outputs.codes, coder.encode(descriptors, leaf_ids))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("name", ["yin_yang", "stop_sign", "photograph"])
def test_an_image_gets_the_codes_of_routing_and_coding_apart(
    engine: Engine, photograph: Path, name: str, size: tuple[int, int], stride: int
) -> None:
    gray = _gray(photograph if name == "photograph" else EXAMPLES / f"{name}.png", size)
    rows, cols, descriptors = sift.locate(gray, "fast-sift", 2)
    taken = np.arange(rows * cols).reshape(rows, cols)[::stride, ::stride]
    view = _with_stride(engine.view, stride)
    found = view.encode_image(Picture(gray), ONE_THREAD, Stopwatch(), keep=True)
    assert found.grid == taken.shape
    _assert_same(found.codes, _apart(engine, descriptors.at(taken.reshape(-1))))


@pytest.mark.parametrize("band", [1, 100, 400, 2048])
@pytest.mark.parametrize("step", [2, 4, 12, 14, 16])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_bands_are_pooled_to_the_bits_of_codes_that_are_kept(
    monkeypatch: pytest.MonkeyPatch, band: int, step: int, stride: int, threads: int
) -> None:
    codes = CodesConfig(n_atoms=40, nonzeros=5, stride=stride)
    residuals = ResidualsConfig(levels=(2,), pyramid=(2,), components=4)
    view = ViewConfig(depth=4, step=step)
    config = EngineConfig((view,), (codes, residuals), max_side=500)
    engine = Engine(random_bundle(config), threads)
    picture = engine.decode_picture(random_png(band + step, 173, 141))
    kept = engine.view.encode_image(picture, ONE_THREAD, Stopwatch(), keep=True)
    monkeypatch.setattr(strips, "_BAND", band)
    found = engine.view.encode_image(picture, engine.threads, Stopwatch())
    assert found.kept_codes is None
    assert found.grid == kept.grid
    by_rows = pooling.finest_level(kept.codes, kept.grid, codes)
    np.testing.assert_array_equal(found.finest, by_rows)
    np.testing.assert_array_equal(kept.finest, by_rows)
    assert found.sums is not None
    assert kept.sums is not None
    np.testing.assert_array_equal(found.sums.totals, kept.sums.totals)
    np.testing.assert_array_equal(found.sums.masses, kept.sums.masses)


@pytest.mark.parametrize("count", AWKWARD_COUNTS)
def test_descriptors_get_the_codes_of_routing_and_coding_apart(
    engine: Engine, photograph: Path, count: int
) -> None:
    described = engine.describe(_gray(photograph, (97, 61))).reshape(-1, 128)
    # Strong and weak ones, and one of zeros among them.
    descriptors = described[:: len(described) // 40][:count].copy()
    descriptors[count // 2 : count // 2 + 1] = 0
    _assert_same(engine.encode(descriptors), _apart(engine, Descriptors.of(descriptors)))
