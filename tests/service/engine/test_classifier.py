"""Scores of the linear classifier."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import Float32Array, Float64Array
from service.engine.classifier import LinearClassifier
from tests import reference
from tests.reference import EPSILON
from tests.support.samples import PROPERTY, random_descriptors

seeds = st.integers(0, 2**32 - 1)
Slices = tuple[slice, ...]

# Around the width of a SIMD register, and around the rows that are asked for ahead.
feature_counts = st.sampled_from([0, 1, 15, 16, 17, 300])
label_counts = st.sampled_from([1, 2, 3, 15, 16, 17, 101])
block_counts = st.sampled_from([1, 2, 4])

WHOLE: Slices = (slice(None),)


def some_zeros(rng: np.random.Generator, n_features: int) -> Float32Array:
    pooled: Float32Array = random_descriptors(rng, 1, n_features)[0]
    pooled[rng.random(n_features) < rng.random()] = 0
    return pooled


def random_slices(rng: np.random.Generator, n_features: int, n_blocks: int) -> Slices:
    """Blocks one after another, some of them perhaps empty."""
    inner = np.sort(rng.integers(0, n_features + 1, n_blocks - 1))
    ends = [0, *inner.tolist(), n_features]
    return tuple(slice(begin, end) for begin, end in pairwise(ends))


def random_classifier(
    rng: np.random.Generator, n_features: int, n_labels: int, n_blocks: int
) -> LinearClassifier:
    """Any integers; scales and biases of very different sizes."""
    weights = rng.integers(-(2**7), 2**7, (n_features, n_labels), np.int8)
    scales = 10.0 ** rng.uniform(-8, 0, (n_blocks, n_labels))
    bias = 10.0 ** rng.uniform(-8, 0, n_labels)
    slices = random_slices(rng, n_features, n_blocks)
    return LinearClassifier(weights, scales.astype(np.float32), bias.astype(np.float32), slices)


def scales_of_rows(classifier: LinearClassifier) -> Float64Array:
    """The scale of every weight (n_features, n_labels)."""
    rows = [scale.astype(np.float64) for scale in classifier.scales]
    counts = [len(classifier.weights[part]) for part in classifier.slices]
    return np.repeat(np.array(rows), counts, axis=0)


def weights_of(classifier: LinearClassifier) -> Float64Array:
    weights: Float64Array = classifier.weights * scales_of_rows(classifier)
    return weights


def rounding(classifier: LinearClassifier, pooled: Float32Array) -> Float64Array:
    """What float32 may cost: products and sums, the scale and its addition, for each block."""
    size = reference.scores(np.abs(pooled), np.abs(weights_of(classifier)), np.abs(classifier.bias))
    return (len(pooled) + 2 + len(classifier.slices)) * EPSILON * size


@PROPERTY
@given(seeds, feature_counts, label_counts, block_counts)
def test_scores_equal_the_oracle(seed: int, n_features: int, n_labels: int, n_blocks: int) -> None:
    rng = np.random.default_rng(seed)
    pooled = some_zeros(rng, n_features)
    classifier = random_classifier(rng, n_features, n_labels, n_blocks)
    expected = reference.scores(pooled, weights_of(classifier), classifier.bias)
    difference = np.abs(classifier.scores(pooled) - expected)
    assert (difference <= rounding(classifier, pooled)).all()


@PROPERTY
@given(seeds, feature_counts, label_counts, block_counts)
def test_rounding_weights_moves_a_score_by_half_a_scale_at_most(
    seed: int, n_features: int, n_labels: int, n_blocks: int
) -> None:
    rng = np.random.default_rng(seed)
    pooled = some_zeros(rng, n_features)
    sizes = 10.0 ** rng.uniform(-8, 8, n_labels)
    weights = (random_descriptors(rng, n_features, n_labels) * sizes).astype(np.float32)
    slices = random_slices(rng, n_features, n_blocks)
    classifier = LinearClassifier.from_floats(weights, np.zeros(n_labels, np.float32), slices)
    bound = np.abs(pooled).astype(np.float64) @ scales_of_rows(classifier) / 2
    difference = np.abs(classifier.scores(pooled) - reference.scores(pooled, weights, 0))
    assert (difference <= bound + rounding(classifier, pooled)).all()


def test_the_largest_weight_of_a_label_is_the_largest_integer() -> None:
    weights = np.array([[0.5, -3], [-1, 2], [0.25, 1e-6]], np.float32)
    classifier = LinearClassifier.from_floats(weights, np.zeros(2, np.float32), WHOLE)
    # 127/2 and 127/4 are rounded to nearest, a half to the even neighbour.
    expected = [[64, -127], [-127, 85], [32, 0]]
    np.testing.assert_array_equal(classifier.weights, expected)
    np.testing.assert_array_equal(classifier.scales, np.array([[1, 3]], np.float32) / 127)


def test_every_block_has_its_own_scales() -> None:
    weights = np.array([[100, 1], [-50, 3], [0.5, 0], [-1, 0]], np.float32)
    slices = (slice(0, 2), slice(2, 4))
    classifier = LinearClassifier.from_floats(weights, np.zeros(2, np.float32), slices)
    np.testing.assert_array_equal(classifier.weights, [[127, 42], [-64, 127], [64, 0], [-127, 0]])
    expected = np.array([[100, 3], [1, 0]], np.float32) / 127
    np.testing.assert_array_equal(classifier.scales, expected)


def test_a_label_without_weights_scores_its_bias() -> None:
    weights = np.array([[0, 1], [0, 2]], np.float32)
    bias = np.array([-0.5, 0], np.float32)
    classifier = LinearClassifier.from_floats(weights, bias, WHOLE)
    assert classifier.scales[0, 0] == 0
    assert not classifier.weights[:, 0].any()
    assert classifier.scores(np.ones(2, np.float32))[0] == -0.5


@pytest.mark.parametrize("size", [1e-45, 5e-45, 1e-43, 1e-42, 4e-41, 7e-41])
def test_weights_too_small_for_a_scale_do_not_change_their_sign(size: float) -> None:
    weights = np.array([[size, -size], [-size, size]], np.float32)
    integers = LinearClassifier.from_floats(weights, np.zeros(2, np.float32), WHOLE).weights
    assert (integers * np.sign(weights) >= 0).all()


def test_a_zero_vector_scores_the_bias() -> None:
    bias = np.array([1.5, -2.5], np.float32)
    classifier = LinearClassifier.from_floats(np.ones((4, 2), np.float32), bias, WHOLE)
    np.testing.assert_array_equal(classifier.scores(np.zeros(4, np.float32)), bias)


def test_scoring_leaves_the_bias_alone() -> None:
    bias = np.zeros(2, np.float32)
    classifier = LinearClassifier.from_floats(np.ones((4, 2), np.float32), bias, WHOLE)
    classifier.scores(np.ones(4, np.float32))
    assert not bias.any()


def test_the_arrays_of_a_classifier_are_read_only() -> None:
    bias = np.zeros(2, np.float32)
    classifier = LinearClassifier.from_floats(np.ones((4, 2), np.float32), bias, WHOLE)
    assert not classifier.weights.flags.writeable
    assert not classifier.scales.flags.writeable
    assert not classifier.bias.flags.writeable
