"""Files that are there whole or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["remove_unfinished", "replacing"]

# Hidden, so that whoever reads a whole folder passes it over.
_UNFINISHED = ".unfinished-"


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` at the end; a reader sees the old or the new.

    Nothing is left of it where writing fails.
    """
    unfinished = path.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
    with unfinished.open("xb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left in a folder."""
    for path in folder.glob(f"{_UNFINISHED}*"):
        path.unlink(missing_ok=True)
