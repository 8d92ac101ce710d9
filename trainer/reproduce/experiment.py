"""What an experiment on accuracy is about: a data set, its splits, settings, files on disk."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainer.config import FitConfig
from trainer.data.dataset import Dataset, Split
from trainer.errors import DataError
from trainer.reproduce.benchmarks import Benchmark, Foreign, foreign_images
from trainer.reproduce.cache import Cache
from trainer.reproduce.cells import Cell
from trainer.reproduce.models import Source, files_fingerprint

__all__ = ["Experiment"]


@dataclass(frozen=True)
class Experiment:
    """A data set below the folder `data`, the settings of a fit, and what is kept on disk.

    Without `may_compute`, what is not on disk is left out.
    """

    benchmark: Benchmark
    data: Path
    config: FitConfig
    cache: Cache
    may_compute: bool = True

    @property
    def train_per_class(self) -> int:
        """How many images of each class train."""
        return self.config.train_per_class or self.benchmark.train_per_class

    @cached_property
    def dataset(self) -> Dataset:
        """The images that are classified."""
        return self.benchmark.scan(self.data)

    @cached_property
    def foreign(self) -> Foreign:
        """The images of the other data sets."""
        return foreign_images(self.data, self.benchmark)

    @cached_property
    def paths(self) -> list[Path]:
        """The files of the data set, in the order of all Gram matrices' rows."""
        return [image.path for image in self.dataset.images]

    @cached_property
    def files(self) -> str:
        """The fingerprint of these files."""
        return files_fingerprint(self.data, self.paths)

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        """The labels of these files."""
        return np.array([image.label for image in self.dataset.images])

    def split(self, seed: int) -> Split:
        """One of the random splits; every class must have images left to test."""
        split = self.dataset.split(self.train_per_class, seed)
        untested = set(self.labels.tolist()) - {image.label for image in split.test}
        if untested:
            name = self.dataset.labels[min(untested)]
            raise DataError(
                f"class {name} has no images beyond the {self.train_per_class} that train"
            )
        return split

    def source(self, cell: Cell, seed: int) -> Source:
        """The images that the model of a cell is learned from."""
        if cell.dictionary == "foreign":
            words = "-".join(self.foreign.names)
            return Source(self.foreign.images, words, self.may_compute)
        words = f"{self.benchmark.name}-split{seed}"
        return Source(self.split(seed).train, words, self.may_compute)
