"""What an experiment keeps on disk: models, Gram matrices and results, each in one file.

A file's name ends with a fingerprint of everything that made it, so that a change of images,
settings or code makes another file. Files are written whole or not at all; what cannot be
read, or is not of the fingerprint that it is asked for, is computed again.
"""

import json
import logging
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.data.files import replacing

__all__ = ["Cache", "Entry", "default_folder"]

logger = logging.getLogger(__name__)

Arrays = dict[str, npt.NDArray[Any]]

_SHOWN_DIGITS = 16


@dataclass(frozen=True)
class Entry:
    """A kind of file (its folder), words for people, and the fingerprint of what made it."""

    kind: str
    words: str
    fingerprint: str


@dataclass(frozen=True)
class Cache:
    """The folder of an experiment's files."""

    folder: Path

    def arrays(self, entry: Entry) -> Arrays | None:
        """The arrays on record; None where there are none, or where they are damaged."""
        path = self._path(entry, "npz")
        if not path.exists():
            return None
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                arrays = dict(found)  # reads all of them, which checks their sums
                fingerprint = bytes(arrays.pop("fingerprint")).decode()
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            logger.warning("%s is damaged and computed again: %s", path, error)
            return None
        return arrays if fingerprint == entry.fingerprint else None

    def keep_arrays(self, entry: Entry, arrays: Arrays) -> None:
        """Write the arrays, in place of what was there."""
        fingerprint = np.frombuffer(entry.fingerprint.encode(), np.uint8)
        named: dict[str, Any] = {"fingerprint": fingerprint, **arrays}
        with replacing(self._new_path(entry, "npz")) as file:
            np.savez(file, **named)

    def facts(self, entry: Entry) -> dict[str, Any] | None:
        """The JSON object on record; None where there is none, or where it is damaged."""
        path = self._path(entry, "json")
        try:
            found = json.loads(path.read_text("utf-8"))
            facts = dict(found["facts"]) if found["fingerprint"] == entry.fingerprint else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s is damaged and computed again: %s", path, error)
            return None
        return facts

    def keep_facts(self, entry: Entry, facts: dict[str, Any]) -> None:
        """Write a JSON object, in place of what was there."""
        document = {"fingerprint": entry.fingerprint, "facts": facts}
        with replacing(self._new_path(entry, "json")) as file:
            file.write(f"{json.dumps(document, indent=1)}\n".encode())

    def _new_path(self, entry: Entry, suffix: str) -> Path:
        path = self._path(entry, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _path(self, entry: Entry, suffix: str) -> Path:
        name = f"{entry.words}-{entry.fingerprint[:_SHOWN_DIGITS]}.{suffix}"
        return self.folder / entry.kind / name


def default_folder() -> Path:
    """`leafcode/reproduce` in the user's folder for caches."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "leafcode" / "reproduce"
