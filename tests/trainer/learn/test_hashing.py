"""Building projection hashes, and gluing buckets that hold too little."""

import numpy as np
import pytest

from service.engine.arrays import Float32Array
from service.engine.coding import Coder
from service.engine.hashing import ProjectionHash
from trainer.learn.hashing import HashSettings, build_hash, glue_buckets


def _points(n: int = 2000, width: int = 12, seed: int = 0) -> Float32Array:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, width)) * np.arange(width, 0, -1)).astype(np.float32)


@pytest.mark.parametrize("directions", ["random", "pca"])
def test_every_bit_of_a_tanh_hash_halves_the_points(directions: str) -> None:
    settings = HashSettings(5, directions)  # type: ignore[arg-type]
    points = _points(1000)
    buckets = build_hash(points, settings, np.random.default_rng(0)).route(points)
    for bit in range(5):
        assert np.count_nonzero(buckets >> bit & 1) == 500


def test_pca_directions_are_the_principal_components() -> None:
    hash_ = build_hash(_points(), HashSettings(3, "pca"), np.random.default_rng(0))
    assert np.abs(hash_.directions[range(3), range(3)]).min() > 0.95


def test_more_bits_than_dimensions_are_filled_with_random_directions() -> None:
    hash_ = build_hash(_points(width=4), HashSettings(6, "pca"), np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(hash_.directions, axis=1), 1, atol=1e-5)


def test_sine_hash_is_periodic_along_its_directions() -> None:
    points = _points()
    hash_ = build_hash(points, HashSettings(4, "pca", periodic=True), np.random.default_rng(0))
    first = hash_.directions[0].astype(np.float64)
    moved = points + (2 * np.pi * first / (first @ first)).astype(np.float32)
    agree = (hash_.route(points) & 1) == (hash_.route(moved) & 1)
    # A few points lie within rounding of a change of sign.
    assert agree.mean() > 0.99


@pytest.mark.parametrize("n", [1, 50])
@pytest.mark.parametrize("value", [0, 1])
def test_constant_points_are_safe(value: float, n: int) -> None:
    points = np.full((n, 6), value, np.float32)
    for periodic in (False, True):
        settings = HashSettings(3, "pca", periodic)
        hash_ = build_hash(points, settings, np.random.default_rng(0))
        assert np.isfinite(hash_.directions).all()
        assert len(set(hash_.route(points))) == 1


def _bits(counts: list[int]) -> tuple[ProjectionHash, Float32Array]:
    """A hash that reads three bits off three coordinates, and so many points a bucket."""
    hash_ = ProjectionHash(np.eye(3, dtype=np.float32), np.full(3, -0.5, np.float32))
    buckets = np.repeat(np.arange(8), counts)
    return hash_, (buckets[:, None] >> np.arange(3) & 1).astype(np.float32)


def test_nearly_empty_buckets_go_to_the_full_one_fewest_bits_away() -> None:
    hash_, points = _bits([9, 1, 0, 0, 0, 0, 0, 9])
    glued = glue_buckets(hash_, points, 5)
    np.testing.assert_array_equal(glued.owners, [0, 0, 0, 7, 0, 7, 7, 7])


def test_full_buckets_keep_themselves() -> None:
    hash_, points = _bits([5, 5, 5, 5, 5, 5, 5, 5])
    np.testing.assert_array_equal(glue_buckets(hash_, points, 5).owners, np.arange(8))


def test_fullest_bucket_owns_all_when_none_is_full() -> None:
    hash_, points = _bits([1, 0, 2, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(glue_buckets(hash_, points, 5).owners, np.full(8, 2))


def test_glued_route_and_spread_coder_agree() -> None:
    hash_, points = _bits([9, 1, 0, 0, 3, 0, 0, 9])
    glued = glue_buckets(hash_, points, 5)
    atoms = np.linspace(1, 2, 8, dtype=np.float32)[:, None]  # of one value each
    coder = Coder.from_table(np.arange(8, dtype=np.int32)[:, None], atoms)
    ones = np.ones((len(points), 1), np.float32)
    bare = glued.spread(coder).encode(ones, hash_.route(points))
    expected = coder.encode(ones, glued.route(points))
    np.testing.assert_array_equal(bare.atom_ids, expected.atom_ids)
    np.testing.assert_array_equal(bare.values, expected.values)
