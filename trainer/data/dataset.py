"""A folder of images with one sub-folder a class, and its reproducible splits."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from trainer.data.image_files import find_images, is_folder, is_hidden, is_image_name, printable
from trainer.data.urls import is_url
from trainer.errors import DataError

__all__ = ["Dataset", "LabelledImage", "Split", "dataset_of", "scan", "shortened"]

_SHOWN_NAMES = 6


@dataclass(frozen=True)
class LabelledImage:
    """A file and the index of its label."""

    path: Path
    label: int


@dataclass(frozen=True)
class Dataset:
    """Images by class: labels sorted, files of `images` sorted within each label.

    `skipped` are files that are not named like images, `unlabelled` images without a class,
    `unknown` images that show none of the classes.
    """

    root: Path
    labels: tuple[str, ...]
    images: tuple[LabelledImage, ...]
    skipped: tuple[Path, ...] = ()
    unlabelled: tuple[Path, ...] = ()
    unknown: tuple[Path, ...] = ()

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
        return replace(self, labels=labels, images=kept)

    def without_empty_classes(self) -> "Dataset":
        """The same images, without labels that have none."""
        populated = {image.label for image in self.images}
        return self.restricted_to(
            tuple(label for i, label in enumerate(self.labels) if i in populated)
        )

    def name_of(self, path: Path) -> str:
        """A path relative to the folder, also of a file outside that a file of labels named."""
        if is_url(path):
            return path.relative_to(self.root).as_posix()
        return Path(os.path.relpath(path, self.root)).as_posix()

    def fingerprint(self, images: tuple[LabelledImage, ...]) -> str:
        """SHA-256 over the relative paths of `images`: tells whether two splits are one."""
        names = sorted(self.name_of(image.path) for image in images)
        # Linux allows names that are not UTF-8.
        return hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True)
class Split:
    """Training and test images; no image is in both."""

    train: tuple[LabelledImage, ...]
    test: tuple[LabelledImage, ...]


def scan(root: Path, exclude: tuple[str, ...] = ()) -> Dataset:
    """The images under `root`: all that are below a sub-folder, however deep, are of its class.

    Hidden files and folders are passed over.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder, expected one sub-folder of images a class")
    entries = sorted((p for p in root.iterdir() if not is_hidden(p)), key=lambda p: p.name)
    folders = [path for path in entries if is_folder(path)]
    _require_known(exclude, [folder.name for folder in folders], f"{root} has no sub-folder")
    folders = [folder for folder in folders if folder.name not in exclude]
    if not folders:
        raise DataError(f"{root} has no sub-folders, expected one sub-folder of images a class")
    found = {folder: find_images(folder) for folder in folders}
    files: dict[str, list[Path]] = {}
    for folder in folders:
        # Names that only their unprintable bytes tell apart become one class.
        files.setdefault(printable(folder.name), []).extend(found[folder].images)
    skipped = tuple(path for folder in folders for path in found[folder].skipped)
    dataset = dataset_of(root, files)
    unlabelled = tuple(path for path in entries if not is_folder(path) and is_image_name(path))
    return replace(dataset, skipped=skipped, unlabelled=unlabelled)


def dataset_of(
    root: Path, files: Mapping[str, Sequence[Path]], exclude: Sequence[str] = ()
) -> Dataset:
    """The files of each label; labels in their order, files in theirs."""
    _require_known(exclude, list(files), f"{root} has no class")
    labels = tuple(sorted(set(files) - set(exclude)))
    images = [
        LabelledImage(path, number) for number, label in enumerate(labels) for path in files[label]
    ]
    return Dataset(root, labels, tuple(images))


def _require_known(exclude: Sequence[str], names: Sequence[str], what: str) -> None:
    unknown = sorted(set(exclude) - set(names))
    if unknown:
        raise DataError(f"{what} {', '.join(unknown)} to exclude")


def shortened(names: Sequence[str]) -> str:
    """The first few of many names."""
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
