"""Which files below a folder are images, however deep, linked or named."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from service.engine.image_formats import IMAGE_SUFFIXES
from trainer.data.urls import files_below_url, is_url

__all__ = [
    "FoundFiles",
    "find_images",
    "is_folder",
    "is_hidden",
    "is_image_name",
    "printable",
]

# Folders that systems put beside photographs, with small copies and resource forks in them.
_SYSTEM_FOLDERS = frozenset({"@eaDir", "__MACOSX"})

# Control characters, and what Python makes of bytes that are not UTF-8: 0xFF is U+DCFF.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class FoundFiles:
    """Images below a folder, sorted by their paths, and whatever else is there.

    `skipped` are files that are not named like images and folders that cannot be listed.
    """

    images: tuple[Path, ...]
    skipped: tuple[Path, ...]


def find_images(folder: Path) -> FoundFiles:
    """Every image below `folder`. Links are followed, each folder is entered once.

    A link that leads nowhere counts as an image if it is named like one: reading it tells why
    there is none.
    """
    images: list[Path] = []
    skipped: list[Path] = []
    for path, is_file in _visible_at_url(folder) if is_url(folder) else _files_below(folder, set()):
        (images if is_file and is_image_name(path) else skipped).append(path)
    return FoundFiles(tuple(_sorted(images)), tuple(_sorted(skipped)))


def _sorted(paths: list[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.parts)


def _visible_at_url(folder: Path) -> Iterator[tuple[Path, bool]]:
    """The same for a folder that a URL names, where nothing is linked."""
    for path in files_below_url(folder):
        inside = path.relative_to(folder).parts
        if not any(is_hidden(Path(name)) for name in inside):
            yield path, True


def _files_below(folder: Path, entered: set[tuple[int, int]]) -> Iterator[tuple[Path, bool]]:
    """Files, True with each, and folders that cannot be listed, False with each."""
    try:
        status = folder.stat()
        entries = list(os.scandir(folder))
    except OSError:
        yield folder, False
        return
    # Without this, links that lead upwards never end, and links across take exponential time.
    identity = (status.st_dev, status.st_ino)
    if identity in entered:
        return
    entered.add(identity)
    for entry in sorted(entries, key=lambda entry: entry.name):
        path = folder / entry.name
        if is_hidden(path):
            continue
        if _is_folder(entry):
            yield from _files_below(path, entered)
        else:
            yield path, True


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """As `is_folder`, mostly without asking the system once more."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether a path leads to a folder; False for one that leads nowhere or may not be asked."""
    return path.is_dir() if is_url(path) else os.path.isdir(path)  # noqa: PTH112


def is_hidden(path: Path) -> bool:
    """Whether a file or folder is not meant to be seen."""
    return path.name.startswith(".") or path.name in _SYSTEM_FOLDERS


def is_image_name(path: Path) -> bool:
    """Whether a file is named like an image."""
    return path.suffix.lower() in IMAGE_SUFFIXES


def printable(name: str | Path) -> str:
    r"""A name as text that can be written anywhere.

    Bytes that are not UTF-8, which Linux allows in names, and control characters show as \xff.
    """
    return _UNPRINTABLE.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", str(name))
