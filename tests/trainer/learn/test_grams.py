"""Gram matrices in parts against the products of whole matrices."""

import numpy as np
import pytest

from trainer.learn import grams
from trainer.learn.grams import block_weights, column_slices, gram_matrix, weighted_kernel

_RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n_images", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("n_features", [1, 7, 8, 50])
def test_gram_matrix_of_slices_is_that_of_the_whole(
    n_images: int, n_features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grams, "_SLICE", 8)
    monkeypatch.setattr(grams, "_TILE", 16)
    pooled = _RNG.normal(size=(n_images, n_features)).astype(np.float32)
    found = gram_matrix(column_slices(pooled))
    np.testing.assert_allclose(found, pooled @ pooled.T, atol=1e-4)
    np.testing.assert_array_equal(found, found.T)


def test_gram_matrix_does_not_depend_on_the_number_of_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grams, "_TILE", 16)
    pooled = _RNG.normal(size=(50, 300)).astype(np.float32)
    monkeypatch.setattr(grams, "n_threads", lambda: 1)
    alone = gram_matrix(column_slices(pooled))
    monkeypatch.setattr(grams, "n_threads", lambda: 4)
    np.testing.assert_array_equal(gram_matrix(column_slices(pooled)), alone)


def test_gram_matrix_does_not_depend_on_where_features_lie() -> None:
    pooled = _RNG.random((40, 300), np.float32)
    anywhere = np.ndarray(pooled.shape, np.float32, bytearray(pooled.nbytes + 1), 1)
    anywhere[:] = pooled
    assert not anywhere.flags.aligned
    found = gram_matrix(column_slices(anywhere))
    np.testing.assert_array_equal(found, gram_matrix(column_slices(pooled)))


def test_weighted_kernel_has_the_inner_products_of_weighted_blocks_of_unit_length() -> None:
    blocks = [_RNG.normal(size=(9, 5)).astype(np.float32) for _ in range(3)]
    weights = (1.0, 0.5, 0.0)
    whole = np.hstack([weight * block for weight, block in zip(weights, blocks, strict=True)])
    rows, columns = np.arange(3), np.arange(3, 9)
    found = weighted_kernel([b @ b.T for b in blocks], weights, rows, columns)
    np.testing.assert_allclose(found, whole[rows] @ whole[columns].T / 1.25, atol=1e-5)


def test_block_weights_score_like_the_coefficients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grams, "_SLICE", 8)
    block = _RNG.normal(size=(9, 20)).astype(np.float32)
    coefficients = _RNG.normal(size=(9, 4)).astype(np.float32)
    weights = block_weights(column_slices(block), coefficients, 0.5)
    expected = 0.25 * (block @ block.T) @ coefficients
    np.testing.assert_allclose(0.5 * block @ weights, expected, atol=1e-4)
