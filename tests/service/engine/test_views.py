"""Several views and blocks: each as it is alone, in its place, with its weight."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from service.engine import BrokenImageError, Engine, FeatureExtractor, Stopwatch
from service.engine.arrays import Float32Array, Float64Array, frozen
from service.engine.blocks import CodesBlock, ResidualsBlock
from service.engine.config import CodesConfig
from service.engine.description import describe
from service.engine.fixedpoint import Descriptors
from service.engine.stopwatch import Stage
from service.engine.threads import ONE_THREAD, Threads
from service.engine.views import View
from tests import reference
from tests.support.samples import (
    LABELS,
    SEVERAL,
    random_bundle,
    random_descriptors,
    random_png,
)

CONFIG = replace(SEVERAL, max_side=400)
BUNDLE = random_bundle(CONFIG)
ENGINE = Engine(BUNDLE)

# Two sizes of one strip, and one of several that three threads share.
SIZES = [(80, 70), (45, 90), (270, 190)]


def alone(number: int, data: bytes) -> Float32Array:
    """A block by itself, of a view that nothing else reads; its weight left out."""
    block = ENGINE.blocks[number]
    view = ENGINE.views[block.config.view]
    codes, residuals = (
        block if isinstance(block, kind) else None for kind in (CodesBlock, ResidualsBlock)
    )
    picture = ENGINE.decode_picture(data)
    by_itself = View(view.config, view.hash, codes, residuals)  # type: ignore[arg-type]
    encoded = by_itself.encode_image(picture, ONE_THREAD, Stopwatch())
    return block.pool(encoded)


@pytest.mark.parametrize("size", SIZES)
def test_blocks_together_are_each_alone_times_its_weight(size: tuple[int, int]) -> None:
    data = random_png(1, *size)
    pooled = ENGINE.pooled_vector(data)
    assert pooled.shape == (CONFIG.n_features,)
    for number, place in enumerate(CONFIG.slices):
        weight = np.float32(CONFIG.blocks[number].weight)
        assert pooled[place].any()
        np.testing.assert_array_equal(pooled[place], weight * alone(number, data))


@pytest.mark.parametrize("number", range(4))
def test_the_length_of_a_block_is_its_weight(number: int) -> None:
    part = ENGINE.pooled_vector(random_png(2, 80, 90))[CONFIG.slices[number]]
    length = np.linalg.norm(part.astype(np.float64))
    assert length == pytest.approx(CONFIG.blocks[number].weight, rel=1e-6)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("size", SIZES)
def test_any_number_of_threads_gives_the_same_bits(threads: int, size: tuple[int, int]) -> None:
    data = random_png(3, *size)
    found, expected = Engine(BUNDLE, threads), ENGINE
    np.testing.assert_array_equal(found.pooled_vector(data), expected.pooled_vector(data))
    np.testing.assert_array_equal(found.scores(data), expected.scores(data))


def test_an_extractor_of_the_same_parts_pools_as_the_engine() -> None:
    hashes = [view.hash for view in ENGINE.views]
    extractor = FeatureExtractor(CONFIG, hashes, ENGINE.blocks)
    data = random_png(4, 80, 60)
    np.testing.assert_array_equal(extractor.pooled_vector(data), ENGINE.pooled_vector(data))


def test_scores_are_linear_in_the_blocks() -> None:
    data = random_png(5, 70, 80)
    pooled, classifier = ENGINE.pooled_vector(data), ENGINE.classifier
    weights = np.concatenate(
        [
            classifier.weights[place] * classifier.scales[number].astype(np.float64)
            for number, place in enumerate(CONFIG.slices)
        ]
    )
    expected = reference.scores(pooled, weights, classifier.bias)
    sizes = reference.scores(np.abs(pooled), np.abs(weights), np.abs(classifier.bias))
    bound = (len(pooled) + 2 + len(CONFIG.blocks)) * reference.EPSILON * sizes
    assert (np.abs(ENGINE.scores(data) - expected) <= bound).all()


# --- the first block of codes --------------------------------------------------------


def test_descriptors_are_coded_by_the_first_block_of_codes() -> None:
    descriptors = random_descriptors(np.random.default_rng(6), 40, signs=False)
    codes, coder = ENGINE.encode(descriptors), ENGINE.blocks[1]
    assert isinstance(coder, CodesBlock)
    leaf_ids = ENGINE.views[1].hash.route(descriptors)
    expected = coder.coder.encode(descriptors, leaf_ids)
    assert codes.values.shape == (40, 3)
    np.testing.assert_array_equal(codes.leaf_ids, leaf_ids)
    np.testing.assert_array_equal(codes.atom_ids, expected.atom_ids)
    np.testing.assert_array_equal(codes.values, expected.values)


def test_describe_encode_and_pool_give_the_first_block_of_codes() -> None:
    data = random_png(7, 84, 77, levels=16)
    descriptors = ENGINE.describe(ENGINE.decode(data))
    rows, cols, width = descriptors.shape
    codes = ENGINE.encode(descriptors.reshape(-1, width))
    expected = ENGINE.pooled_vector(data)[CONFIG.slices[1]] / np.float32(1.5)
    np.testing.assert_allclose(ENGINE.pool(codes, (rows, cols)), expected, rtol=0, atol=1e-6)


# --- small images --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "empty"),
    [(44, []), (43, [1]), (40, [1]), (39, [1, 3]), (20, [1, 3])],
)
def test_a_copy_too_small_for_a_descriptor_leaves_a_zero_block(side: int, empty: list[int]) -> None:
    data = random_png(8, side, 80)
    pooled = ENGINE.pooled_vector(data)
    assert [n for n, part in enumerate(CONFIG.slices) if not pooled[part].any()] == empty
    assert {item.label for item in ENGINE.classify(data)} == set(LABELS)
    assert np.isfinite(ENGINE.scores(data)).all()


def test_an_image_too_small_for_a_descriptor_of_its_own_is_refused() -> None:
    with pytest.raises(BrokenImageError, match="80x19 pixels at working size"):
        ENGINE.scores(random_png(8, 19, 80))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_view_of_no_descriptors_has_no_codes_and_no_sums(threads: int) -> None:
    view, picture = ENGINE.views[2], ENGINE.decode_picture(random_png(9, 39, 80))
    encoded = view.encode_image(picture, Threads(threads), Stopwatch(), keep=True)
    assert encoded.grid == (0, 0)
    assert len(encoded.codes.leaf_ids) == 0
    assert encoded.sums is not None
    assert not encoded.sums.masses.any()


# --- codes of some descriptors --------------------------------------------------------


def with_stride(stride: int, threads: int) -> FeatureExtractor:
    """The blocks of the engine; codes are of every `stride`-th descriptor each way."""
    blocks = [
        replace(block, config=replace(block.config, stride=stride))
        if isinstance(block, CodesBlock)
        else block
        for block in ENGINE.blocks
    ]
    config = replace(CONFIG, blocks=tuple(block.config for block in blocks))
    return FeatureExtractor(config, [view.hash for view in ENGINE.views], blocks, threads)


def strided_block(number: int, data: bytes, stride: int) -> Float64Array:
    """A block of codes by the oracle's pooling of every `stride`-th code each way."""
    config = CONFIG.blocks[number]
    assert isinstance(config, CodesConfig)
    view = ENGINE.views[config.view]
    taken = describe(ENGINE.decode_picture(data), view.config)[::stride, ::stride]
    # Descriptors laid out would be scaled down before they are rounded, not after.
    assert (np.linalg.norm(taken, axis=2) < 1).all()
    codes = view.encode(Descriptors.of(frozen(taken.reshape(-1, 128))), ONE_THREAD)
    pooled = reference.pool(
        codes.atom_ids.reshape(*taken.shape[:2], -1),
        codes.values.reshape(*taken.shape[:2], -1),
        config.n_atoms,
        config.sign_rule,
        config.pyramid,
    )
    return config.weight * pooled / np.linalg.norm(pooled)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stride", [1, 2, 3, 64])
def test_codes_with_a_stride_are_those_of_every_so_many_descriptors_each_way(
    stride: int, size: tuple[int, int], threads: int
) -> None:
    data, extractor = random_png(12, *size, levels=16), with_stride(stride, threads)
    pooled, dense = extractor.pooled_vector(data), ENGINE.pooled_vector(data)
    for number, place in enumerate(CONFIG.slices):
        if isinstance(ENGINE.blocks[number], CodesBlock):
            expected = strided_block(number, data, stride)
            np.testing.assert_allclose(pooled[place], expected, atol=1e-5)
        else:
            np.testing.assert_array_equal(pooled[place], dense[place])


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_pooling_takes_every_so_many_of_the_codes_that_it_is_given(stride: int) -> None:
    data, extractor = random_png(13, 90, 61, levels=16), with_stride(stride, 1)
    described = describe(extractor.decode_picture(data), extractor.view.config)
    rows, cols, width = described.shape
    found = extractor.pool(extractor.encode(described.reshape(-1, width)), (rows, cols))
    expected = strided_block(1, data, stride)
    np.testing.assert_allclose(CONFIG.codes.weight * found, expected, atol=1e-5)


# --- times ---------------------------------------------------------------------------


class Laps(Stopwatch):
    """A stopwatch that keeps the order of the stages."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[Stage] = []

    def lap(self, stage: Stage) -> None:
        self.stages.append(stage)
        super().lap(stage)

    def share(self, parts: Mapping[Stage, float]) -> None:
        self.stages.extend(stage for stage, part in parts.items() if part > 0)
        super().share(parts)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_view_has_its_times(threads: int) -> None:
    watch = Laps()
    Engine(BUNDLE, threads).scores(random_png(10, 80, 80), watch=watch)
    # Codes are pooled strip by strip. Lazebnik's SIFT is computed ahead of the strips.
    first, second, third = (
        ["sift", "coding", "pooling"],
        ["sift", "coding", "pooling"],
        ["sift", "coding"],
    )
    views = chain(first, second, third)
    assert watch.stages == ["decode", *views, "pooling", "classifier"]
    assert set(watch.seconds) == set(watch.stages)


def test_a_view_of_no_descriptors_takes_no_time_for_describing() -> None:
    watch = Laps()
    ENGINE.scores(random_png(10, 20, 20), watch=watch)
    assert watch.stages.count("sift") == 1
    assert watch.stages.count("coding") == 1


# --- configuration -------------------------------------------------------------------


def test_grey_images_are_decoded_without_colours_where_no_view_reads_them() -> None:
    assert not CONFIG.needs_colour
    assert ENGINE.decode_picture(random_png(11, 30, 30)).colours is None


def test_hashes_and_views_must_be_equally_many() -> None:
    config = replace(CONFIG, views=CONFIG.views[:1], blocks=(CONFIG.blocks[0], CONFIG.blocks[2]))
    hashes = [view.hash for view in ENGINE.views]
    with pytest.raises(ValueError, match="zip"):
        FeatureExtractor(config, hashes, [ENGINE.blocks[0], ENGINE.blocks[2]])
