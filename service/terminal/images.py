"""Which images the arguments of a command name: files, folders of files, standard input."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from service.engine.image_formats import IMAGE_SUFFIXES

__all__ = ["STDIN", "list_images"]

STDIN = "-"


def list_images(arguments: Sequence[str]) -> list[str]:
    """The arguments in their order, in place of a folder all images below it, sorted.

    A folder without images stays, and so does one that cannot be read: reading tells why.
    """
    return [
        image
        for argument in arguments
        for image in (_in_folder(argument) if os.path.isdir(argument) else [argument])  # noqa: PTH112
    ]


def _in_folder(folder: str) -> list[str]:
    return [str(path) for path in sorted(_below(folder))] or [folder]


def _below(folder: str) -> Iterator[Path]:
    """Images, and folders that cannot be read; hidden files and folders are passed over."""
    unreadable: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=lambda e: unreadable.append(e.filename)):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith("."):
                yield Path(parent, name)
    yield from map(Path, unreadable)
