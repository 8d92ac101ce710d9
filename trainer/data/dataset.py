"""A folder of images with one sub-folder a class, and its reproducible splits."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.errors import DataError

__all__ = ["SUFFIXES", "Dataset", "LabelledImage", "Split", "scan", "shortened"]

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})

_SHOWN_NAMES = 6


@dataclass(frozen=True)
class LabelledImage:
    """A file and the index of its label."""

    path: Path
    label: int


@dataclass(frozen=True)
class Dataset:
    """Images by class: labels sorted, files of `images` sorted within each label."""

    root: Path
    labels: tuple[str, ...]
    images: tuple[LabelledImage, ...]
    skipped: tuple[Path, ...] = ()

    def split(self, train_per_class: int, seed: int) -> "Split":
        """For each class in order, the first images of a random permutation train.

        One generator serves all classes, so that anyone who scans the same folders
        gets the same split.
        """
        rng = np.random.default_rng(seed)
        train: list[LabelledImage] = []
        test: list[LabelledImage] = []
        for label in range(len(self.labels)):
            members = [image for image in self.images if image.label == label]
            order = rng.permutation(len(members))
            train += [members[i] for i in np.sort(order[:train_per_class])]
            test += [members[i] for i in np.sort(order[train_per_class:])]
        return Split(tuple(train), tuple(test))

    def restricted_to(self, labels: tuple[str, ...]) -> "Dataset":
        """The same images without classes outside `labels`, numbered as in `labels`."""
        index = {label: i for i, label in enumerate(labels)}
        kept = tuple(
            LabelledImage(image.path, index[self.labels[image.label]])
            for image in self.images
            if self.labels[image.label] in index
        )
        return Dataset(self.root, labels, kept, self.skipped)

    def without_empty_classes(self) -> "Dataset":
        """The same images, without labels that have none."""
        populated = {image.label for image in self.images}
        return self.restricted_to(
            tuple(label for i, label in enumerate(self.labels) if i in populated)
        )

    def fingerprint(self, images: tuple[LabelledImage, ...]) -> str:
        """SHA-256 over the relative paths of `images`: tells whether two splits are one."""
        names = sorted(image.path.relative_to(self.root).as_posix() for image in images)
        return hashlib.sha256("\n".join(names).encode()).hexdigest()


@dataclass(frozen=True)
class Split:
    """Training and test images; no image is in both."""

    train: tuple[LabelledImage, ...]
    test: tuple[LabelledImage, ...]


def scan(root: Path, exclude: tuple[str, ...] = ()) -> Dataset:
    """The images under `root`; files that are hidden or not named like an image are skipped."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder, expected one sub-folder of images a class")
    folders = sorted(
        (folder for folder in root.iterdir() if folder.is_dir() and not _hidden(folder)),
        key=lambda folder: folder.name,
    )
    unknown = sorted(set(exclude) - {folder.name for folder in folders})
    if unknown:
        raise DataError(f"{root} has no sub-folder {', '.join(unknown)} to exclude")
    folders = [folder for folder in folders if folder.name not in exclude]
    if not folders:
        raise DataError(f"{root} has no sub-folders, expected one sub-folder of images a class")
    images: list[LabelledImage] = []
    skipped: list[Path] = []
    for label, folder in enumerate(folders):
        for path in sorted(folder.iterdir(), key=lambda path: path.name):
            if path.is_file() and path.suffix.lower() in SUFFIXES and not _hidden(path):
                images.append(LabelledImage(path, label))
            elif not _hidden(path):
                skipped.append(path)
    return Dataset(root, tuple(f.name for f in folders), tuple(images), tuple(skipped))


def shortened(names: Sequence[str]) -> str:
    """The first few of many names."""
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _hidden(path: Path) -> bool:
    return path.name.startswith(".")
