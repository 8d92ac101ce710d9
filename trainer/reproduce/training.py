"""What training costs: tree and dictionary, by the number of descriptors.

The paper trains on two million. Time per descriptor should not grow with their number:
every step is a pass over the descriptors, or sorts within a leaf.
"""

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from service.engine.arrays import Float32Array
from service.engine.config import MAX_ATOMS
from trainer.data.dataset import scan
from trainer.data.sampling import SampleSettings, sample_descriptors
from trainer.learn.algorithm2 import CodeSettings, learn_codes
from trainer.learn.tree import TreeSettings, build_tree
from trainer.settings import Settings
from trainer.stages import peak_bytes

__all__ = ["TrainingCost", "TrainingCostSettings", "measure_training"]

logger = logging.getLogger(__name__)


class TrainingCostSettings(Settings):
    """The largest number of descriptors, halved three times, and the size of the model."""

    samples: int = Field(
        2_000_000,
        ge=8,
        le=10**9,
        description="the largest number of descriptors, halved three times",
    )
    depth: int = Field(16, ge=1, le=24, description="depth of the tree")
    atoms: int = Field(2048, ge=1, le=MAX_ATOMS, description="atoms of the dictionary")
    nonzeros: int = Field(5, ge=1, le=128, description="atoms a code may use")
    iterations: int = Field(5, ge=1, le=1000, description="rounds of dictionary learning")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="the same seed gives the same result")


@dataclass(frozen=True)
class TrainingCost:
    """Seconds for one number of descriptors, and the relative errors on the way."""

    n_descriptors: int
    tree_seconds: float
    dictionary_seconds: float
    relative_errors: tuple[float, ...]
    peak_gigabytes: float | None
    """The most memory that the process had until then; none where the system does not tell."""

    @property
    def seconds(self) -> float:
        """Seconds for tree and dictionary together."""
        return self.tree_seconds + self.dictionary_seconds

    @property
    def microseconds_each(self) -> float:
        """Microseconds per descriptor, constant if the cost grows linearly."""
        return 1e6 * self.seconds / self.n_descriptors


def measure_training(folder: Path, settings: TrainingCostSettings) -> list[TrainingCost]:
    """Costs for an eighth, a quarter, half and all of the descriptors, fewest first."""
    images = scan(folder).images
    sample = sample_descriptors(images, SampleSettings(settings.samples, seed=settings.seed))
    # Shuffled, so that fewer descriptors are still of all images.
    order = np.random.default_rng(settings.seed).permutation(len(sample.descriptors))
    costs = []
    for part in (8, 4, 2, 1):
        descriptors = sample.descriptors[order[: len(order) // part]]
        costs.append(_measure(descriptors, settings))
        logger.info("%d descriptors: %.0f s", costs[-1].n_descriptors, costs[-1].seconds)
    return costs


def _measure(descriptors: Float32Array, settings: TrainingCostSettings) -> TrainingCost:
    started = time.perf_counter()
    tree = build_tree(descriptors, TreeSettings(settings.depth, wide=False))
    built = time.perf_counter()
    codes = CodeSettings(settings.atoms, settings.nonzeros, settings.iterations, wide=False)
    learned = learn_codes(descriptors, tree, codes, np.random.default_rng(settings.seed))
    ended = time.perf_counter()
    peak = peak_bytes()
    return TrainingCost(
        len(descriptors),
        built - started,
        ended - built,
        learned.relative_errors,
        None if peak is None else peak / 1e9,
    )
