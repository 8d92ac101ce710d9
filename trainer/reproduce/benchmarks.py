"""The data sets of the paper's tables: where they are, and how they are split.

They lie side by side in one folder, so that the others are at hand for a dictionary of
foreign images.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trainer.data.dataset import Dataset, LabelledImage, scan
from trainer.data.image_files import find_images
from trainer.errors import DataError
from trainer.fit import trainable

__all__ = ["CALTECH101", "SCENES15", "Benchmark", "Foreign", "foreign_images"]

_BACKGROUND = "BACKGROUND_Google"

# As many as train on Caltech 101: to describe all images of the other data sets, only to draw
# a few descriptors of each, would take longer than to learn.
_MOST_FOREIGN = 3000


@dataclass(frozen=True)
class Benchmark:
    """Name of the data set's folder, what people call it, and training images a class."""

    name: str
    title: str
    train_per_class: int
    exclude: tuple[str, ...] = ()

    has_background: bool = False

    def with_background(self) -> "Benchmark":
        """The same with its class of clutter, which older work counted: 102 classes."""
        title = f"{self.title} with its background class"
        return replace(self, title=title, exclude=(), has_background=True)

    def scan(self, data: Path) -> Dataset:
        """Its images below the folder `data`, without the classes to exclude."""
        folder = data / self.name
        if not folder.is_dir():
            raise DataError(f"{data} has no folder {self.name}, expected the images of {self.name}")
        there = tuple(name for name in self.exclude if (folder / name).is_dir())
        return trainable(scan(folder, there))


CALTECH101 = Benchmark("caltech101", "Caltech 101", 30, (_BACKGROUND,))
SCENES15 = Benchmark("scenes15", "15 scenes", 100)


@dataclass(frozen=True)
class Foreign:
    """Images of other data sets, and the names of these."""

    images: tuple[LabelledImage, ...]
    names: tuple[str, ...]


def foreign_images(data: Path, benchmark: Benchmark) -> Foreign:
    """Random images below the other folders of `data`, each a data set of any layout."""
    others = sorted(
        folder
        for folder in data.iterdir()
        if folder.is_dir() and folder.name != benchmark.name and not folder.name.startswith(".")
    )
    found = {folder: find_images(folder).images for folder in others}
    paths = [path for files in found.values() for path in files]
    if not paths:
        raise DataError(
            f"{data} has no images beside {benchmark.name}, expected another data set for "
            "the foreign dictionary"
        )
    names = tuple(folder.name for folder, files in found.items() if files)
    places = np.random.default_rng(0).permutation(len(paths))[:_MOST_FOREIGN]
    return Foreign(tuple(LabelledImage(paths[i], 0) for i in np.sort(places)), names)
