"""Folders of images that are named by a URL, such as s3://bucket/photos: fsspec opens them.

What stands for such a folder or file is used as a `pathlib.Path` is, and can be sent to workers.
Paths of this machine stay plain paths.
"""

import argparse
from pathlib import Path
from typing import Any, cast

__all__ = ["files_below_url", "folder_of", "is_url"]


def folder_of(text: str) -> Path:
    """The folder that a command line names by a path or a URL."""
    if "://" not in text:
        return Path(text)
    try:
        from upath import UPath  # noqa: PLC0415
    except ImportError as error:
        raise argparse.ArgumentTypeError(
            f"{text} is a URL, which needs the extra cluster: pip install 'leafcode[cluster]'"
        ) from error
    try:
        folder = UPath(text)
        folder.fs  # noqa: B018  # loads what opens URLs of this kind
    except (ImportError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be opened: {error}") from error
    return cast("Path", folder)


def is_url(path: Path) -> bool:
    """Whether a path is not one of this machine."""
    return not isinstance(path, Path)


def files_below_url(folder: Path) -> list[Path]:
    """All files below a folder, however deep, by as few requests as its kind allows."""
    remote = cast("Any", folder)
    start = len(remote.path.rstrip("/")) + 1
    return [folder / path[start:] for path in sorted(remote.fs.find(remote.path))]
