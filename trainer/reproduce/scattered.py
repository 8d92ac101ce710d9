"""More descriptors than one machine has room for: what a cluster and its driver take for them.

Descriptors are made up where they are needed, around a few thousand directions, so that no images
are needed for as many as anybody likes. Tree and dictionary are learned from them as by `fit`.
"""

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from service.engine.arrays import Float32Array
from service.engine.config import DESCRIPTOR_WIDTH
from trainer.cluster.sampling import MOST_PARTS, ScatteredSample
from trainer.cluster.subtrees import ScatteredPoints, grow_scattered_tree
from trainer.cluster.tasks import Tasks, spans
from trainer.learn.algorithm2 import CodeSettings, learn_codes_of
from trainer.learn.tree import TreeSettings
from trainer.settings import Settings
from trainer.stages import peak_bytes

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ScatteredResult", "ScatteredSettings", "measure_scattered", "scattered_text"]

logger = logging.getLogger(__name__)

_DIRECTIONS = 4096
# Descriptors of a part, at least.
_PER_PART = 40_000


class ScatteredSettings(Settings):
    """Settings of the experiment."""

    descriptors: int = Field(1_000_000, ge=1, le=10**9, description="made-up descriptors")
    depth: int = Field(18, ge=1, le=24, description="depth of the tree")
    atoms: int = Field(256, ge=1, le=2**16, description="atoms of the dictionary")
    nonzeros: int = Field(3, ge=1, le=128, description="atoms a code may use")
    iterations: int = Field(1, ge=1, le=1000, description="rounds of dictionary learning")


@dataclass(frozen=True)
class ScatteredResult:
    """How long it took, how well codes fit, and the most memory that the driver has had."""

    descriptors: int
    depth: int
    n_subtrees: int
    tree_seconds: float
    dictionary_seconds: float
    relative_error: float
    driver_peak_bytes: int | None


def measure_scattered(client: "Client", settings: ScatteredSettings) -> ScatteredResult:
    """Learn a tree and a dictionary from made-up descriptors."""
    tasks, started = Tasks(client), time.monotonic()
    parts = spans(settings.descriptors, _PER_PART, MOST_PARTS)
    made = tasks.map(_made_up, range(len(parts)), list(map(len, parts)))
    sample = ScatteredSample(made, tuple(map(len, parts)))
    tree = grow_scattered_tree(tasks, sample, TreeSettings(settings.depth, wide=False))
    grown = time.monotonic()
    logger.info("tree of depth %d after %.0f s", settings.depth, grown - started)
    codes = CodeSettings(settings.atoms, settings.nonzeros, settings.iterations, wide=False)
    learned = learn_codes_of(ScatteredPoints(tasks, tree), codes, np.random.default_rng(0))
    return ScatteredResult(
        settings.descriptors,
        settings.depth,
        len(tree.subtrees),
        grown - started,
        time.monotonic() - grown,
        learned.relative_errors[-1],
        peak_bytes(),
    )


def scattered_text(result: ScatteredResult) -> str:
    """The result for people."""
    peak = result.driver_peak_bytes
    memory = "unknown" if peak is None else f"{peak / 1e6:.0f} MB"
    return (
        f"{result.descriptors} descriptors, depth {result.depth}, {result.n_subtrees} subtrees: "
        f"tree {result.tree_seconds:.0f} s, dictionary {result.dictionary_seconds:.0f} s, relative "
        f"error {result.relative_error:.4f}; most memory of the driver: {memory}"
    )


def _made_up(number: int, count: int) -> Float32Array:
    """Descriptors (count, 128) near some of the same directions for every number."""
    directions = np.abs(
        np.random.default_rng(0).standard_normal((_DIRECTIONS, DESCRIPTOR_WIDTH), np.float32)
    )
    rng = np.random.default_rng([1, number])
    made = np.abs(rng.standard_normal((count, DESCRIPTOR_WIDTH), np.float32))
    made += directions[rng.integers(_DIRECTIONS, size=count)]
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made
