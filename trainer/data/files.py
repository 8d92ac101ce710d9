"""Files that are there whole or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["finish", "remove_unfinished", "replacing", "unfinished"]

# Hidden, so that whoever reads a whole folder passes it over.
_UNFINISHED = ".unfinished-"


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` at the end; a reader sees the old or the new.

    Nothing is left of it where writing fails.
    """
    with unfinished(path) as file:
        yield file
    finish(Path(file.name), path)


@contextmanager
def unfinished(path: Path) -> Iterator[IO[bytes]]:
    """A new file beside `path`, for `finish`; nothing is left of it where writing fails."""
    written = path.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
    with written.open("xb") as file, _removed_on_error(written):
        yield file
        file.flush()


def finish(written: Path, path: Path) -> None:
    """Put an unfinished file in the place of `path` once all of it is on the disk."""
    with _removed_on_error(written), written.open("rb") as file:
        os.fsync(file.fileno())
        written.replace(path)


@contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left in a folder."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        path.unlink(missing_ok=True)
