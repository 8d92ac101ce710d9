"""Which images are classified: those below a folder, or those that a list names."""

import itertools
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.data.image_files import find_images, is_image_name, printable
from trainer.data.labels_file import read_paths
from trainer.errors import DataError

__all__ = ["STDIN", "ImageList", "list_images"]

logger = logging.getLogger(__name__)

STDIN = Path("-")
"""In place of a list: standard input."""

# Paths of a list that are looked for, to tell what they are relative to.
_LOOKED_FOR = 100


@dataclass(frozen=True)
class ImageList:
    """The names of images, in their order, and the folder that they are relative to."""

    folder: Path
    names: tuple[str, ...]


def list_images(source: Path) -> ImageList:
    """The images below a folder, however deep, or those of a list, as they stand there."""
    if source.is_dir():
        return _below(source)
    if source == STDIN:
        return _listed(sys.stdin.buffer.read(), "standard input", [Path()])
    if is_image_name(source):
        raise DataError(f"{source} is one image, expected a folder of images or a list of paths")
    try:
        data = source.read_bytes()
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error.strerror or error}") from error
    return _listed(data, str(source), [source.parent, Path()])


def _below(folder: Path) -> ImageList:
    found = find_images(folder)
    if not found.images:
        raise DataError(f"there are no images below {folder}")
    if found.skipped:
        logger.warning("%d files below %s are no images", len(found.skipped), printable(folder))
    # All paths begin with the folder's, unless that is "."; os.path.relpath would take a third of
    # the whole listing.
    inside = len(str(folder / "_")) - 1
    return ImageList(folder, tuple(str(path)[inside:] for path in found.images))


def _listed(data: bytes, where: str, folders: Sequence[Path]) -> ImageList:
    """Paths are relative to the first of the folders in which some of the first images are."""
    names = tuple(read_paths(data, where))
    if not names:
        raise DataError(f"{where} names no image, expected a path a line")
    first = list(itertools.islice(names, _LOOKED_FOR))
    for folder in folders:
        if any(os.path.exists(folder / name) for name in first):  # noqa: PTH110
            return ImageList(folder, names)
    places = " nor in ".join(str(folder.absolute()) for folder in folders)
    raise DataError(
        f"{where}: there is no {printable(first[0])} in {places}, and none of the next images"
    )
