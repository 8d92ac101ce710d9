"""Points, buckets, atoms and files of groups for the tests of given groups."""

import json
from pathlib import Path

import numpy as np

from service.engine.arrays import Float32Array, Float64Array
from trainer.learn.somp import LeafGroups, group_by_leaf

OVERLAPPING = [[0, 1, 2], [2, 3, 4], [5, 6], [1, 6, 7], [0, 7], [4]]
COSTS = [[0.1, 0, 0.2], [0.5, 0.5, 0], [0, 0], [0.01, 1, 0.2], [0, 0], [0.3]]


def points_of(n: int = 400, width: int = 10, seed: int = 0) -> Float32Array:
    """Random points (n, width) without negative values."""
    return np.abs(np.random.default_rng(seed).normal(size=(n, width))).astype(np.float32)


def buckets_of(points: Float32Array, n_leaves: int, seed: int = 0) -> LeafGroups:
    """The points in leaves drawn at random."""
    leaf_ids = np.random.default_rng(seed).integers(0, n_leaves, len(points))
    return group_by_leaf(points, leaf_ids.astype(np.int32), n_leaves)


def unit_atoms(n: int, width: int, seed: int = 1) -> Float64Array:
    """Random atoms (n, width) of unit norm."""
    atoms = np.random.default_rng(seed).normal(size=(n, width))
    units: Float64Array = atoms / np.linalg.norm(atoms, axis=1, keepdims=True)
    return units


def write_json(path: Path, document: object) -> Path:
    """The path, with the document written to it."""
    path.write_text(json.dumps(document), "utf-8")
    return path
