"""Small but real bundles with random tensors, written by the engine's own writer.

The probes are scored by the engine, so a bundle from here loads like a trained one
and its labels are as good as chance.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from service.engine import Bundle, Engine, EngineConfig, Manifest, Probe, write_bundle
from service.engine.arrays import Float32Array
from service.engine.bundle import Tensor
from service.engine.classifier import LinearClassifier
from service.engine.coding import invert_grams
from service.engine.tree import Tree
from tests.support import pictures

CONFIG = EngineConfig(depth=4, n_atoms=32, nonzeros=3, max_side=120)
LABELS = ("apple", "boat", "cat", "door")


def random_tensors(
    seed: int = 0, config: EngineConfig = CONFIG, n_labels: int = len(LABELS)
) -> dict[str, Tensor]:
    """Every tensor that `config` asks for: unit atoms, unit decision vectors, small weights."""
    rng = np.random.default_rng(seed)
    dictionary = _unit_rows(rng, config.n_atoms)
    table = np.stack(
        [
            np.sort(rng.choice(config.n_atoms, config.nonzeros, replace=False))
            for _ in range(config.n_leaves)
        ]
    ).astype(np.int32)
    weights = rng.normal(size=(config.n_features, n_labels)).astype(np.float32)
    tree_vectors = _unit_rows(rng, config.n_leaves - 1)
    tree_thresholds = rng.normal(0, 0.05, config.n_leaves - 1).astype(np.float32)
    bias = rng.normal(size=n_labels).astype(np.float32)
    return {
        **Tree.from_floats(tree_vectors, tree_thresholds).tensors(),
        "table": table,
        "dictionary": dictionary,
        "inverse_grams": invert_grams(table, dictionary),
        **LinearClassifier.from_floats(weights, bias).tensors(),
    }


def random_bundle(
    seed: int = 0,
    *,
    name: str = "tiny",
    version: int = 1,
    config: EngineConfig = CONFIG,
    labels: tuple[str, ...] = LABELS,
) -> Bundle:
    """A valid bundle in memory, with two probes that the engine scored itself."""
    tensors = random_tensors(seed, config, len(labels))
    manifest = Manifest(
        name=name,
        version=version,
        created="2026-01-01T00:00:00Z",
        config=config,
        labels=labels,
        provenance={"dataset": "random", "seed": seed},
        quality={"mean_class_accuracy": 0.25},
    )
    engine = Engine(Bundle(manifest, tensors))
    images = (pictures.png(pictures.noise(64, 48, seed)), pictures.jpeg(pictures.disc(96, 80)))
    probes = tuple(Probe(data, tuple(engine.scores(data).tolist())) for data in images)
    return Bundle(replace(manifest, probes=probes), tensors)


def write_model(repository: Path, name: str = "tiny", version: int = 1, seed: int = 0) -> Path:
    """A bundle written to `<repository>/<name>/<version>/`; that folder."""
    folder = repository / name / str(version)
    write_bundle(random_bundle(seed, name=name, version=version), folder)
    return folder


def write_model_with_wrong_probes(repository: Path) -> Path:
    """A bundle that is sound but for the scores that its probes must give."""
    bundle = random_bundle()
    probes = tuple(Probe(probe.image, (9.0,) * len(LABELS)) for probe in bundle.manifest.probes)
    folder = repository / "tiny" / "1"
    write_bundle(Bundle(replace(bundle.manifest, probes=probes), bundle.tensors), folder)
    return folder


def copy_model(folder: Path, target: Path) -> Path:
    """A private copy of a version folder that a test may damage."""
    shutil.copytree(folder, target)
    return target


def flip_byte(path: Path, position: int) -> None:
    """Invert one byte of a file, counted from the end when negative."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def _unit_rows(rng: np.random.Generator, rows: int) -> Float32Array:
    vectors = rng.normal(size=(rows, 128))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)
