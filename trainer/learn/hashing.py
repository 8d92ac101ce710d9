"""Projection hashes g(x) = s(h(Hx + b)), and gluing their nearly empty buckets (2.3).

Such a hash needs less storage than a tree, but many of its buckets get few points.
Those are glued to the nearest full bucket, fewest bits apart, and use its active set:
only the look-up table changes.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from service.engine.arrays import Float32Array, Float64Array, Int32Array
from service.engine.coding import Coder
from service.engine.fixedpoint import Descriptors
from service.engine.hashing import Hash, ProjectionHash

__all__ = ["Directions", "GluedHash", "HashSettings", "build_hash", "glue_buckets"]

Directions = Literal["random", "pca"]

# A sine changes sign once per half period; with directions of this many standard
# deviations to a half period, neighbours mostly agree and distant points do not.
_DEVIATIONS_PER_HALF_PERIOD = 2.0
# Descriptors that are in memory in float64 at a time.
_ROWS = 2**12


@dataclass(frozen=True)
class HashSettings:
    """Bits, where the directions come from, whether h is the sine, and when to glue."""

    bits: int
    directions: Directions = "pca"
    periodic: bool = False
    smallest_bucket: int = 16


@dataclass(frozen=True)
class GluedHash:
    """A hash whose nearly empty buckets count as the full bucket that owns them."""

    hash: Hash
    owners: Int32Array

    @property
    def n_leaves(self) -> int:
        """Buckets, also those that are owned by others and never answered."""
        return self.hash.n_leaves

    def route(self, descriptors: Float32Array | Descriptors) -> Int32Array:
        """Owners (n,) of the buckets of n descriptors."""
        owners: Int32Array = self.owners[self.hash.route(descriptors)]
        return owners

    def spread(self, coder: Coder) -> Coder:
        """A coder for the bare hash: every bucket gets the row of its owner."""
        return replace(
            coder,
            table=coder.table[self.owners],
            inverse_grams=coder.inverse_grams[self.owners],
        )


def build_hash(
    descriptors: Float32Array, settings: HashSettings, rng: np.random.Generator
) -> ProjectionHash:
    """A hash for descriptors (n, d).

    tanh: every direction is cut at the median of its projections. Sine: the projections
    are scaled to the width of a period, at a random phase.
    """
    directions = _directions(descriptors, settings, rng)
    projections = descriptors @ directions.T
    if not settings.periodic:
        return ProjectionHash(directions, -np.median(projections, axis=0).astype(np.float32))
    deviations = np.maximum(projections.std(axis=0), np.float32(1e-12))
    scaled = directions * (np.pi / (_DEVIATIONS_PER_HALF_PERIOD * deviations))[:, None]
    phases = rng.uniform(0, 2 * np.pi, settings.bits)
    return ProjectionHash(scaled.astype(np.float32), phases.astype(np.float32), periodic=True)


def _directions(
    descriptors: Float32Array, settings: HashSettings, rng: np.random.Generator
) -> Float32Array:
    """Random unit vectors, or the principal components, random ones after the last (p, d)."""
    width = descriptors.shape[1]
    random = rng.normal(size=(settings.bits, width))
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    if settings.directions == "pca":
        _, components = np.linalg.eigh(_scatter(descriptors))
        leading = components[:, ::-1].T[: settings.bits]
        random[: len(leading)] = leading
    return random.astype(np.float32)


def _scatter(descriptors: Float32Array) -> Float64Array:
    """Σ(x - mean)(x - mean)ᵀ (d, d), which has the directions of the covariance."""
    mean = descriptors.mean(axis=0, dtype=np.float64)
    scatter = np.zeros((len(mean), len(mean)))
    for begin in range(0, len(descriptors), _ROWS):
        centred = descriptors[begin : begin + _ROWS] - mean
        scatter += centred.T @ centred
    return scatter


def glue_buckets(hash_: Hash, descriptors: Float32Array, smallest: int) -> GluedHash:
    """Glue buckets with fewer than `smallest` of the descriptors to the nearest others.

    Nearest is fewest bits apart, ties go to the lowest differing bit. The fullest bucket
    always counts as full.
    """
    n_buckets = hash_.n_leaves
    counts = np.bincount(hash_.route(descriptors), minlength=n_buckets)
    buckets = np.arange(n_buckets)
    full = (counts >= smallest) | (buckets == counts.argmax())
    owners = np.where(full, buckets, -1)
    while (owners < 0).any():  # one bit further away in every round
        reached = owners.copy()
        for bit in reversed(range(n_buckets.bit_length() - 1)):
            across = owners[buckets ^ (1 << bit)]
            reached = np.where((owners < 0) & (across >= 0), across, reached)
        owners = reached
    return GluedHash(hash_, owners.astype(np.int32))
