"""Projection hashes against the formula, and bundles that hold one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import BundleError, Engine, write_bundle
from service.engine.hashing import ProjectionHash
from tests.support import samples


def _hash(bits: int, *, periodic: bool, seed: int = 0) -> ProjectionHash:
    rng = np.random.default_rng(seed)
    return ProjectionHash(
        rng.normal(size=(bits, 128)).astype(np.float32),
        rng.normal(size=bits).astype(np.float32),
        periodic,
    )


@pytest.mark.parametrize("periodic", [False, True])
@samples.PROPERTY
@given(seed=st.integers(0, 1000), n=st.sampled_from(samples.AWKWARD_COUNTS), bits=st.integers(1, 9))
def test_buckets_are_the_signs_of_the_formula(
    *, periodic: bool, seed: int, n: int, bits: int
) -> None:
    rng = np.random.default_rng(seed)
    x = samples.random_descriptors(rng, n)
    hash_ = _hash(bits, periodic=periodic, seed=seed)
    inner = x.astype(np.float64) @ hash_.directions.T + hash_.offsets
    values = np.sin(inner) if periodic else np.tanh(inner)
    expected = ((values > 0) << np.arange(bits)).sum(axis=1)
    # A sum of 128 products of this size is off by less than 1e-4 in float32.
    certain = (np.abs(values) > 1e-4).all(axis=1)
    np.testing.assert_array_equal(hash_.route(x)[certain], expected[certain])


def test_bucket_is_the_same_in_any_batch() -> None:
    x = samples.random_descriptors(np.random.default_rng(0), 70)
    hash_ = _hash(6, periodic=True)
    alone = np.concatenate([hash_.route(row[None]) for row in x])
    np.testing.assert_array_equal(hash_.route(x), alone)


def test_zero_is_not_positive() -> None:
    hash_ = ProjectionHash(np.ones((3, 4), np.float32), np.zeros(3, np.float32))
    assert hash_.route(np.zeros((1, 4), np.float32))[0] == 0


@pytest.mark.parametrize("kind", ["tanh", "sine"])
def test_bundle_with_a_projection_hash_serves(tmp_path: Path, kind: str) -> None:
    config = replace(samples.CONFIG, views=(replace(samples.VIEW, hash=kind),))  # type: ignore[arg-type]
    written = samples.random_bundle(config)
    write_bundle(written, tmp_path / "1")
    engine = Engine.load(tmp_path / "1")
    assert isinstance(engine.hash, ProjectionHash)
    assert engine.hash.periodic == (kind == "sine")
    x = samples.random_descriptors(np.random.default_rng(1), 20)
    np.testing.assert_array_equal(engine.encode(x).leaf_ids, engine.hash.route(x))


def test_bundle_that_names_another_hash_than_it_holds_is_refused(tmp_path: Path) -> None:
    bundle = samples.random_bundle(
        replace(samples.CONFIG, views=(replace(samples.VIEW, hash="tanh"),)), n_probes=0
    )
    wrong = replace(bundle, manifest=replace(bundle.manifest, config=samples.CONFIG))
    write_bundle(wrong, tmp_path / "1")
    with pytest.raises(BundleError, match=r"expected .*tree_vectors"):
        Engine.load(tmp_path / "1")
