"""The stages composed: Engine against its own steps and against the oracle's whole road."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from service.engine import (
    BrokenImageError,
    Codes,
    DescriptorError,
    EmptyImageError,
    Engine,
    EngineConfig,
    FeatureExtractor,
    ImageLimits,
    OversizedImageError,
)
from service.engine.arrays import Float32Array
from service.engine.config import CodesConfig, ResidualsConfig, ViewConfig
from service.engine.tree import Tree
from tests import reference
from tests.support.samples import (
    AWKWARD_COUNTS,
    LABELS,
    PROPERTY,
    encoded,
    random_bundle,
    random_descriptors,
    random_png,
)

BUNDLE = random_bundle()
ENGINE = Engine(BUNDLE)

seeds = st.integers(0, 2**32 - 1)


def oracle_of(engine: Engine) -> reference.Model:
    tree = engine.hash
    assert isinstance(tree, Tree)
    return reference.Model(
        tree=reference.DecisionTree(tree.vectors, tree.thresholds, tree.wide),
        table=engine.coder.table,
        dictionary=engine.coder.dictionary,
        sign_rule=engine.config.codes.sign_rule,
        levels=engine.config.codes.pyramid,
    )


def assert_same_codes(found: Codes, expected: Codes) -> None:
    np.testing.assert_array_equal(found.leaf_ids, expected.leaf_ids)
    np.testing.assert_array_equal(found.atom_ids, expected.atom_ids)
    np.testing.assert_array_equal(found.values, expected.values)


# --- composition ---------------------------------------------------------------------


def pooled_by_steps(data: bytes) -> Float32Array:
    descriptors = ENGINE.describe(ENGINE.decode(data))
    rows, cols, width = descriptors.shape
    return ENGINE.pool(ENGINE.encode(descriptors.reshape(-1, width)), (rows, cols))


@pytest.mark.parametrize(("height", "width"), [(20, 20), (21, 20), (33, 47), (90, 70)])
def test_the_public_steps_compose_to_the_pooled_vector(height: int, width: int) -> None:
    data = random_png(8, height, width, levels=16)
    np.testing.assert_array_equal(ENGINE.pooled_vector(data), pooled_by_steps(data))


@pytest.mark.parametrize(("height", "width"), [(20, 20), (21, 20), (33, 47), (90, 70)])
def test_the_public_steps_of_long_descriptors_compose_up_to_rounding(
    height: int, width: int
) -> None:
    data = random_png(8, height, width)
    # An image is rounded before its descriptors are scaled down to length one, and its steps
    # after that: so far is the length of what was rounded from one, at the most.
    descriptors = ENGINE.describe(ENGINE.decode(data)).reshape(-1, 128)
    moved = np.sqrt(128) / 2 * max(reference.step_of(x, wide=False) for x in descriptors)
    # By that share, the largest value of an atom may change, and the length of them all.
    np.testing.assert_allclose(
        ENGINE.pooled_vector(data), pooled_by_steps(data), rtol=2 * moved, atol=0
    )


def test_the_public_steps_compose_to_the_scores() -> None:
    data = random_png(9, levels=16)
    scores = ENGINE.classifier.scores(pooled_by_steps(data))
    np.testing.assert_array_equal(ENGINE.scores(data), scores)


def test_classify_ranks_the_scores() -> None:
    data = random_png(10)
    assert ENGINE.classify(data, top_k=2) == ENGINE.rank(ENGINE.scores(data), 2)


def test_an_extractor_without_classifier_pools_as_the_engine() -> None:
    extractor = FeatureExtractor(ENGINE.config, [ENGINE.hash], ENGINE.blocks)
    data = random_png(11)
    np.testing.assert_array_equal(extractor.pooled_vector(data), ENGINE.pooled_vector(data))


# Routing jumps at a boundary, and so does rounding at a half: an oracle in float64 can be
# followed only where every decision and every step is clear. In float32, a descriptor is off by
# less than 1e-6 of its largest value.
CLEAR = 1e-4
CLEAR_STEP = 127e-7


def smallest_doubt(gray: Float32Array) -> float:
    """How far all values are from the middle between two steps."""
    descriptors = reference.gather(gray).reshape(-1, 128)
    steps = np.array([reference.fixed_point(x, wide=False) for x in descriptors])
    return float(np.abs(steps - np.floor(steps) - 0.5).min())


def smallest_margin(model: reference.Model, gray: Float32Array) -> float:
    descriptors = reference.describe_rounded(gray).reshape(-1, 128)
    return min(
        abs(margin)
        for descriptor in descriptors
        for _, margin, _ in reference.decision_margins(
            model.tree, descriptor, reference.route(model.tree, descriptor)
        )
    )


@pytest.mark.parametrize("levels", [256, 16])
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_the_whole_road_equals_the_oracle_s(seed: int, levels: int) -> None:
    data, model = random_png(seed, 28, 31, levels), oracle_of(ENGINE)
    gray = ENGINE.decode(data)
    assert smallest_doubt(gray) > CLEAR_STEP, "choose another seed"
    assert smallest_margin(model, gray) > CLEAR, "choose another seed"
    expected = reference.pooled_vector(model, gray)
    # The descriptors' tolerance of test_sift, through well-conditioned atoms.
    np.testing.assert_allclose(ENGINE.pooled_vector(data), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_the_probabilities_equal_the_oracle_s(seed: int) -> None:
    data, model = random_png(seed, 28, 31), oracle_of(ENGINE)
    pooled = reference.pooled_vector(model, ENGINE.decode(data))
    classifier = ENGINE.classifier
    scores = reference.scores(pooled, classifier.weights * classifier.scales, classifier.bias)
    expected = reference.softmax(scores, ENGINE.config.probability_scale)
    found = {item.label: item.probability for item in ENGINE.classify(data, top_k=3)}
    # An error of 1e-5 in 252 features, weighted by weights around one, at random signs.
    np.testing.assert_allclose([found[label] for label in LABELS], expected, rtol=0, atol=2e-4)


# --- classify ------------------------------------------------------------------------


@pytest.mark.parametrize(("top_k", "expected"), [(1, 1), (3, 3), (5, 3)])
def test_classify_answers_at_most_all_labels(top_k: int, expected: int) -> None:
    assert len(ENGINE.classify(random_png(1), top_k)) == expected


def test_probabilities_over_all_labels_sum_to_one() -> None:
    predictions = ENGINE.classify(random_png(1), len(LABELS))
    assert sum(item.probability for item in predictions) == pytest.approx(1, abs=1e-12)


def test_a_flat_image_is_classified_by_the_bias() -> None:
    flat = encoded(Image.new("L", (30, 30), 77), "PNG")
    np.testing.assert_array_equal(ENGINE.scores(flat), BUNDLE.tensors["classifier_bias"])


COLOURED = EngineConfig(
    views=(ViewConfig(depth=3), ViewConfig(depth=2, descriptor="colour", reduction=2)),
    blocks=(
        CodesConfig(n_atoms=12, nonzeros=3, pyramid=(2, 1)),
        ResidualsConfig(levels=(1,), components=4, pyramid=(1,), view=1),
    ),
    max_side=64,
    known_threshold=-1000.0,  # below any score
)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("size", [(30, 30), (500, 331)])
@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (200, 30, 30), (13, 77, 201)])
def test_an_image_of_one_colour_is_not_known(
    colour: tuple[int, int, int], size: tuple[int, int], kind: str
) -> None:
    engine = Engine(random_bundle(COLOURED))
    scored = engine.score(encoded(Image.new("RGB", size, colour), kind))
    assert scored.is_blank
    assert not engine.is_known(scored)


def test_a_colour_without_gradients_counts_in_the_scores() -> None:
    engine = Engine(random_bundle(COLOURED))
    red, blue = (encoded(Image.new("RGB", (30, 30), name), "PNG") for name in ("red", "blue"))
    assert not np.array_equal(engine.scores(red), engine.scores(blue))


@pytest.mark.parametrize("data", [random_png(3), encoded(Image.new("L", (30, 30)), "PNG")])
def test_an_explained_image_is_scored_like_any(data: bytes) -> None:
    scored, (explained, _) = ENGINE.score(data), ENGINE.explained_scores(data)
    np.testing.assert_array_equal(explained.scores, scored.scores)
    assert explained.is_blank is scored.is_blank


def test_an_image_is_known_by_its_best_score() -> None:
    data = random_png(4)
    best = float(ENGINE.scores(data).max())
    for threshold, known in ((best, True), (best + 1e-6, False)):
        config = replace(BUNDLE.manifest.config, known_threshold=threshold)
        engine = Engine(replace(BUNDLE, manifest=replace(BUNDLE.manifest, config=config)))
        assert engine.is_known(engine.score(data)) is known


@pytest.mark.parametrize(("height", "width"), [(1, 1), (19, 40), (40, 19), (600, 100)])
def test_an_image_too_small_at_working_size_is_refused(height: int, width: int) -> None:
    # 600x100 shrinks to 64x11 under this bundle's limit of 64.
    with pytest.raises(BrokenImageError, match="at working size, expected at least 20x20"):
        ENGINE.classify(random_png(0, height, width))


def test_classify_passes_the_limits_on() -> None:
    with pytest.raises(OversizedImageError, match="expected at most 10"):
        ENGINE.classify(random_png(0), limits=ImageLimits(max_bytes=10))


def test_classify_refuses_no_bytes() -> None:
    with pytest.raises(EmptyImageError):
        ENGINE.classify(b"")


def test_the_engine_shows_labels_configuration_and_manifest() -> None:
    assert ENGINE.labels == LABELS
    assert ENGINE.config == BUNDLE.manifest.config
    assert ENGINE.manifest == BUNDLE.manifest


# --- encode --------------------------------------------------------------------------


@pytest.mark.parametrize("count", AWKWARD_COUNTS)
def test_encode_answers_one_code_per_descriptor(count: int) -> None:
    codes = ENGINE.encode(random_descriptors(np.random.default_rng(0), count))
    shapes = (codes.leaf_ids.shape, codes.atom_ids.shape, codes.values.shape)
    assert shapes == ((count,), (count, 3), (count, 3))


@PROPERTY
@given(seeds, st.lists(st.integers(0, 33), max_size=3))
def test_codes_do_not_depend_on_the_batches(seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    descriptors = random_descriptors(rng, 33)
    some = rng.random(33) < 0.5
    descriptors[some] = np.abs(descriptors[some])
    parts = [ENGINE.encode(part) for part in np.split(descriptors, sorted(cuts))]
    joined = Codes(
        np.concatenate([part.leaf_ids for part in parts]),
        np.concatenate([part.atom_ids for part in parts]),
        np.concatenate([part.values for part in parts]),
    )
    assert_same_codes(joined, ENGINE.encode(descriptors))


DESCRIPTORS = random_descriptors(np.random.default_rng(4), 17)


@pytest.mark.parametrize(
    "same",
    [
        DESCRIPTORS.astype(np.float64),
        DESCRIPTORS.astype(">f4"),
        np.asfortranarray(DESCRIPTORS),
        np.repeat(DESCRIPTORS, 2, axis=0)[::2],
        np.repeat(DESCRIPTORS, 2, axis=1)[:, ::2],
        DESCRIPTORS[::-1].copy()[::-1],
        DESCRIPTORS.tolist(),
    ],
    ids=["float64", "big-endian", "Fortran", "rows", "columns", "reversed", "lists"],
)
def test_the_same_numbers_in_another_layout_have_the_same_codes(same: Any) -> None:
    assert_same_codes(ENGINE.encode(same), ENGINE.encode(DESCRIPTORS))


def test_read_only_descriptors_are_accepted() -> None:
    frozen = DESCRIPTORS.copy()
    frozen.flags.writeable = False
    assert_same_codes(ENGINE.encode(frozen), ENGINE.encode(DESCRIPTORS))


def test_encode_leaves_its_input_alone() -> None:
    descriptors = DESCRIPTORS.copy()
    ENGINE.encode(descriptors)
    assert descriptors.flags.writeable
    np.testing.assert_array_equal(descriptors, DESCRIPTORS)


def test_codes_belong_to_the_caller() -> None:
    codes = ENGINE.encode(DESCRIPTORS)
    codes.values[:], codes.atom_ids[:], codes.leaf_ids[:] = 0, 0, 0
    assert ENGINE.encode(DESCRIPTORS).values.any()


@pytest.mark.parametrize(
    "shape", [(0,), (128,), (1, 127), (1, 129), (0, 127), (128, 1), (2, 2, 128), (0, 0), ()]
)
def test_descriptors_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DescriptorError, match=r"have the shape \[.*\], expected \[n, 128\]"):
        ENGINE.encode(np.zeros(shape, np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (16, 127), (5, 64)])
def test_a_value_that_is_not_finite_is_refused(value: float, place: tuple[int, int]) -> None:
    descriptors = DESCRIPTORS.copy()
    descriptors[place] = value
    with pytest.raises(DescriptorError, match=f"descriptor {place[0]} has no finite norm"):
        ENGINE.encode(descriptors)


@pytest.mark.parametrize("signs", [True, False])
@pytest.mark.parametrize("value", [1e19, -1e19, 3e38])
def test_values_whose_squares_leave_float32_are_refused(value: float, *, signs: bool) -> None:
    descriptors = DESCRIPTORS.copy() if signs else np.abs(DESCRIPTORS)
    descriptors[5] = value
    with pytest.raises(DescriptorError, match="descriptor 5 has no finite norm"):
        ENGINE.encode(descriptors)


@pytest.mark.parametrize("value", [1e39, 1e300, -1e300])
def test_a_float64_beyond_float32_is_refused(value: float) -> None:
    descriptors = DESCRIPTORS.astype(np.float64)
    descriptors[3, 3] = value
    with pytest.raises(DescriptorError, match="descriptor 3 has no finite norm"):
        ENGINE.encode(descriptors)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [[[1.0] * 128, [1.0]], [["a"] * 128], "text", {"a": 1}, object(), [[10**400] * 128], [[{}]]],
    ids=["ragged", "strings", "text", "dict", "object", "huge integers", "nested"],
)
def test_what_is_no_array_of_numbers_is_refused(value: Any) -> None:
    with pytest.raises(DescriptorError, match="descriptors are not an array of numbers"):
        ENGINE.encode(value)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, 1e-30, 1e18])
def test_finite_descriptors_of_any_size_have_finite_codes(value: float) -> None:
    codes = ENGINE.encode(np.full((2, 128), value, np.float32))
    assert np.isfinite(codes.values).all()


# --- pool ----------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(4, 4), (0, 17), (17, 2), (-17, 1), (-17, -1)])
def test_codes_that_do_not_fill_the_grid_are_refused(grid: tuple[int, int]) -> None:
    with pytest.raises(DescriptorError, match="17 codes do not fill a grid of"):
        ENGINE.pool(ENGINE.encode(DESCRIPTORS), grid)


def _damaged(column: str, value: Any) -> Codes:
    return replace(ENGINE.encode(DESCRIPTORS), **{column: value})


@pytest.mark.parametrize("atom", [-1, 12, 2**31 - 1])
def test_codes_of_atoms_beyond_the_dictionary_are_refused(atom: int) -> None:
    atom_ids = ENGINE.encode(DESCRIPTORS).atom_ids
    atom_ids[5, 1] = atom
    with pytest.raises(DescriptorError, match=f"{atom}.*, expected 0 to 11"):
        ENGINE.pool(_damaged("atom_ids", atom_ids), (1, 17))


@pytest.mark.parametrize("column", ["atom_ids", "values"])
@pytest.mark.parametrize("shape", [(17, 2), (16, 3), (17, 4), (51,)])
def test_codes_of_another_shape_are_refused(column: str, shape: tuple[int, ...]) -> None:
    dtype = np.int32 if column == "atom_ids" else np.float32
    with pytest.raises(DescriptorError, match=r"have the shape \[.*\], expected \[17, 3\]"):
        ENGINE.pool(_damaged(column, np.zeros(shape, dtype)), (1, 17))


@pytest.mark.parametrize("grid", [(1, 17), (17, 1)])
def test_codes_may_fill_any_grid(grid: tuple[int, int]) -> None:
    pooled = ENGINE.pool(ENGINE.encode(DESCRIPTORS), grid)
    assert pooled.shape == (ENGINE.config.n_features,)


# --- threads -------------------------------------------------------------------------


def test_four_threads_get_the_results_of_one() -> None:
    images = [random_png(seed, 60, 50) for seed in range(8)] * 4
    expected = [ENGINE.scores(image) for image in images]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(ENGINE.scores, images))
    np.testing.assert_array_equal(found, expected)


def test_four_threads_get_the_codes_of_one() -> None:
    batches: list[npt.NDArray[np.float32]] = [
        random_descriptors(np.random.default_rng(seed), 500) for seed in range(16)
    ]
    expected = [ENGINE.encode(batch).values for batch in batches]
    with ThreadPoolExecutor(4) as threads:
        found = [codes.values for codes in threads.map(ENGINE.encode, batches)]
    np.testing.assert_array_equal(found, expected)
