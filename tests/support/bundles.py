"""Small but real bundles with random tensors, written by the engine's own writer.

The probes are scored by the engine, so a bundle from here loads like a trained one
and its labels are as good as chance.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from service.engine import Bundle, Engine, EngineConfig, Manifest, Probe, write_bundle
from service.engine.config import CodesConfig, ViewConfig
from tests.support import pictures
from tests.support.samples import random_tensors

CONFIG = EngineConfig.of_codes(
    ViewConfig(depth=4), CodesConfig(n_atoms=32, nonzeros=3), max_side=120
)
# Random scores are all above it, so that only a blank image is not known.
WITH_THRESHOLD = replace(CONFIG, known_threshold=-1000.0)
LABELS = ("apple", "boat", "cat", "door")


def random_bundle(
    seed: int = 0,
    *,
    name: str = "tiny",
    version: int = 1,
    config: EngineConfig = CONFIG,
    labels: tuple[str, ...] = LABELS,
) -> Bundle:
    """A valid bundle in memory, with two probes that the engine scored itself."""
    tensors = random_tensors(config, len(labels), seed)
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


def write_model(
    repository: Path,
    name: str = "tiny",
    version: int = 1,
    seed: int = 0,
    config: EngineConfig = CONFIG,
) -> Path:
    """A bundle written to `<repository>/<name>/<version>/`; that folder."""
    folder = repository / name / str(version)
    write_bundle(random_bundle(seed, name=name, version=version, config=config), folder)
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
