"""Explanations add up to the score, and each of their parts is where it belongs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine import Engine, LabelError, Stopwatch
from service.engine.arrays import Float32Array, Float64Array
from service.engine.blocks import ResidualsBlock
from service.engine.config import (
    EXPLANATION_CELLS as CELLS,
)
from service.engine.config import (
    BlockConfig,
    CodesConfig,
    Descriptor,
    EngineConfig,
    ResidualsConfig,
    SignRule,
    ViewConfig,
)
from service.engine.description import patches
from service.engine.threads import ONE_THREAD
from tests import reference
from tests.support.samples import LABELS, SEVERAL, random_bundle, random_png

ENGINE = Engine(random_bundle(SEVERAL))

_PYRAMIDS = st.sampled_from([(1,), (2, 1), (4, 2, 1), (3, 1), (3, 3)])
# Brought down to 90 pixels a side, of which 20 must be left.
_SIZES = st.tuples(st.integers(22, 95), st.integers(22, 95))


@st.composite
def _blocks(draw: st.DrawFn, depth: int, view: int) -> list[BlockConfig]:
    """One or both kinds of blocks of a view."""
    pyramid = draw(_PYRAMIDS)
    codes = CodesConfig(
        n_atoms=draw(st.integers(3, 20)),
        nonzeros=draw(st.integers(1, 3)),
        sign_rule=draw(st.sampled_from(["absolute", "raw", "split"])),
        pyramid=draw(_PYRAMIDS),
        weight=draw(st.floats(0.1, 3)),
        stride=draw(st.integers(1, 3)),
        view=view,
    )
    residuals = ResidualsConfig(
        levels=tuple(draw(st.integers(0, depth)) for _ in pyramid),
        components=draw(st.integers(1, 9)),
        pyramid=pyramid,
        weight=draw(st.floats(0.1, 3)),
        view=view,
    )
    if view == 0:
        return draw(st.sampled_from([[codes], [codes, residuals], [residuals, codes]]))
    return draw(st.sampled_from([[residuals], [codes, residuals]]))


@st.composite
def _configs(draw: st.DrawFn) -> EngineConfig:
    """One view or two, the second of any descriptor."""
    descriptor: Descriptor = draw(
        st.sampled_from(["fast-sift", "lazebnik-sift", "contour-sift", "colour"])
    )
    reduction = 2 if descriptor == "colour" else draw(st.integers(1, 2))
    step = draw(st.sampled_from([2, 4, 6]))
    views = (ViewConfig(depth=4, step=step), ViewConfig(3, descriptor, 0, reduction))
    count = draw(st.integers(1, 2))
    blocks = [block for i in range(count) for block in draw(_blocks(views[i].depth, i))]
    return EngineConfig(views[:count], tuple(blocks), max_side=90)


@settings(max_examples=60, deadline=None)
@given(_configs(), _SIZES, st.integers(0, 99))
def test_cells_and_bias_add_up_to_the_score(
    config: EngineConfig, size: tuple[int, int], seed: int
) -> None:
    engine, data = Engine(random_bundle(config, seed=seed)), random_png(seed, *size)
    scored, found = engine.explained_scores(data)
    scores = scored.scores
    np.testing.assert_array_equal(scores, engine.scores(data))
    assert found.label == LABELS[scores.argmax()]
    assert found.score == scores.max()
    scale = max(1.0, float(np.abs(found.cells).sum()))
    assert found.cells.sum() + found.bias == pytest.approx(found.score, abs=1e-5 * scale)
    by_block = [block.contribution for block in found.blocks]
    assert sum(by_block) + found.bias == pytest.approx(found.score, abs=1e-5 * scale)
    assert [block.kind for block in found.blocks] == [block.kind for block in config.blocks]


@pytest.mark.parametrize("sign_rule", ["absolute", "raw", "split"])
@pytest.mark.parametrize("pyramid", [(1,), (4, 2, 1), (3, 1)])
def test_every_entry_of_codes_belongs_to_the_descriptor_with_the_largest_value(
    sign_rule: SignRule, pyramid: tuple[int, ...]
) -> None:
    codes = CodesConfig(n_atoms=9, nonzeros=3, sign_rule=sign_rule, pyramid=pyramid)
    config = EngineConfig.of_codes(ViewConfig(depth=3, step=4), codes, max_side=90)
    engine, data = Engine(random_bundle(config)), random_png(3, 70, 84)
    found = engine.explain(data, LABELS[1])
    np.testing.assert_allclose(found.cells, _cells_of_codes(engine, data, 1), atol=1e-6)


def _cells_of_codes(engine: Engine, data: bytes, label: int) -> Float64Array:
    """The map by the definition: every entry goes to the first descriptor that attains it."""
    config, picture = engine.config.codes, engine.decode_picture(data)
    encoded = engine.view.encode_image(picture, ONE_THREAD, Stopwatch(), keep=True)
    codes, (rows, cols) = encoded.codes, encoded.grid
    dense = np.zeros((rows * cols, config.n_atoms))
    np.put_along_axis(dense, codes.atom_ids.astype(np.intp), codes.values, axis=1)
    channels = reference.channels_of(dense.reshape(rows, cols, -1), config.sign_rule)
    entries = engine.pooled_vector(data) * _weights(engine, label)
    shares, entry = np.zeros((rows, cols)), 0
    for regions in config.pyramid:
        for region in np.ndindex(regions, regions):
            inside = (np.arange(rows) * regions // rows == region[0])[:, None] & (
                np.arange(cols) * regions // cols == region[1]
            )
            for channel in range(config.n_channels):
                values = np.where(inside, channels[:, :, channel], -np.inf)
                shares.flat[values.argmax()] += entries[entry]
                entry += 1
    return _laid_out(engine, shares, picture.gray.shape)


def _weights(engine: Engine, label: int) -> Float32Array:
    return engine.classifier.weights_of(label, np.ones(engine.config.n_features, np.float32))


def _laid_out(engine: Engine, shares: Float64Array, size: tuple[int, ...]) -> Float64Array:
    """Shares in cells, by painting every patch on 32 times as many pixels a side."""
    height, width = size
    left, top, step, side = patches(height, width, engine.config.views[0])
    fine = np.zeros((CELLS * height, CELLS * width))
    for (row, col), share in np.ndenumerate(shares):
        y, x = CELLS * (top + step * row), CELLS * (left + step * col)
        fine[y : y + CELLS * side, x : x + CELLS * side] += share / (CELLS * side) ** 2
    cells: Float64Array = fine.reshape(CELLS, height, CELLS, width).sum(axis=(1, 3))
    return cells


def test_every_residual_is_parted_among_its_descriptors() -> None:
    block = ResidualsConfig(levels=(1, 2), components=5, pyramid=(2, 1), weight=0.7)
    codes = CodesConfig(n_atoms=4, nonzeros=1, weight=1e-6)
    config = EngineConfig((ViewConfig(depth=3, step=4),), (block, codes), max_side=90)
    engine, data = Engine(random_bundle(config)), random_png(4, 60, 90)
    expected = _cells_of_residuals(engine, data, 2)
    np.testing.assert_allclose(engine.explain(data, LABELS[2]).cells, expected, atol=1e-4)


def _cells_of_residuals(engine: Engine, data: bytes, label: int) -> Float64Array:
    """The map by the definition: a descriptor's own residual in place of the sum of all."""
    picture, block = engine.decode_picture(data), engine.blocks[0]
    assert isinstance(block, ResidualsBlock)
    encoded = engine.view.encode_image(picture, ONE_THREAD, Stopwatch(), keep=True)
    (rows, cols), routed = encoded.grid, encoded.routed
    assert routed is not None
    descriptors = routed.descriptors
    fixed = descriptors.fixed(wide=False)
    lengths = fixed.lengths.astype(np.float64)
    # A descriptor of zeros has no direction.
    points = fixed.directions / np.maximum(fixed.norms.astype(np.float64), 1)[:, None]
    weights, shares, entry = _weights(engine, label), np.zeros(rows * cols), 0
    for regions, level in zip(block.config.pyramid, block.config.levels, strict=True):
        where = np.add.outer(
            regions * (np.arange(rows) * regions // rows), np.arange(cols) * regions // cols
        ).reshape(-1)
        node_ids, nodes = routed.leaf_ids >> (3 - level), block.config.nodes_of(level)
        members = [
            (where == region) & (node_ids == node)
            for region, node in np.ndindex(regions**2, 2**level)
        ]
        filled = np.sqrt(sum(bool(own.any()) for own in members) * len(block.config.pyramid))
        for number, own in enumerate(members):
            node = nodes.start + number % 2**level
            projection = block.projections[node] * block.scales[node].astype(np.float64)
            own_residuals = (points[own] - block.means[node]) * lengths[own, None] @ projection
            length = np.linalg.norm(own_residuals.sum(axis=0))
            parts = weights[entry : entry + 5] * block.config.weight / (length * filled)
            shares[own] += own_residuals @ parts
            entry += 5
    return _laid_out(engine, shares.reshape(rows, cols), picture.gray.shape)


# --- what is told beside the cells -----------------------------------------------------


def test_a_comparison_is_the_difference_of_two_explanations() -> None:
    data = random_png(5, 80, 70)
    one, other = (ENGINE.explain(data, label) for label in LABELS[:2])
    found = ENGINE.explain(data, LABELS[0], against=LABELS[1])
    assert (found.label, found.against) == LABELS[:2]
    np.testing.assert_allclose(found.cells, one.cells - other.cells, atol=1e-6)
    assert found.bias == pytest.approx(one.bias - other.bias)
    assert found.score == pytest.approx(one.score - other.score)


def test_without_a_label_the_best_one_is_explained() -> None:
    data = random_png(6, 80, 70)
    assert ENGINE.explain(data).label == ENGINE.classify(data)[0].label
    others = [label for label in LABELS if label != ENGINE.classify(data)[0].label]
    assert ENGINE.explain(data, against=others[0]).score > 0


@pytest.mark.parametrize("names", [("wasp", None), (None, "wasp")])
def test_an_unknown_label_is_named(names: tuple[str | None, str | None]) -> None:
    with pytest.raises(LabelError, match="'wasp' is unknown to sample, expected one of its 3"):
        ENGINE.explain(random_png(6), *names)


def test_a_label_has_no_difference_to_itself() -> None:
    found = ENGINE.explain(random_png(6, 70, 70), "bee", "bee")
    assert (found.score, found.bias, np.abs(found.cells).max(), found.atoms) == (0, 0, 0, ())


def test_the_strongest_atoms_come_first_with_their_patches() -> None:
    config = EngineConfig.of_codes(
        ViewConfig(depth=3, step=4), CodesConfig(n_atoms=30, nonzeros=3, stride=2), max_side=90
    )
    engine, data = Engine(random_bundle(config)), random_png(7, 90, 61)
    found = engine.explain(data)
    strengths = [abs(atom.contribution) for atom in found.atoms]
    assert len(found.atoms) == 20
    assert strengths == sorted(strengths, reverse=True)
    entries = engine.pooled_vector(data) * _weights(engine, LABELS.index(found.label))
    assert strengths[0] >= np.abs(entries).max()
    for atom in found.atoms:
        assert 0 <= atom.left <= 61 - atom.side
        assert 0 <= atom.top <= 90 - atom.side
        # The stride of the codes times the step of the grid.
        assert (atom.left - 2) % 8 == 0
        assert atom.value != 0


@pytest.mark.parametrize("threads", [2, 3])
def test_any_number_of_threads_explains_the_same(threads: int) -> None:
    data = random_png(8, 90, 49)
    found, expected = Engine(random_bundle(SEVERAL), threads).explain(data), ENGINE.explain(data)
    np.testing.assert_array_equal(found.cells, expected.cells)
    assert replace(found, cells=expected.cells) == expected


def test_a_block_without_descriptors_adds_nothing() -> None:
    found = ENGINE.explain(random_png(9, 20, 80))
    assert [block.contribution for block in found.blocks][1::2] == [0, 0]
    assert found.cells.sum() + found.bias == pytest.approx(found.score, abs=1e-5)
