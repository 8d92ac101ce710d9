"""Vectors that outlast a run: files in a folder, each with what one run had to compute.

A file is a row of vectors and, at its end, a table of their keys. It gets its name when it is
whole, and is never changed after: runs at the same time add files of their own, and a file that
another run removes stays readable for those that opened it. Where a folder has more than its
limit, the files that were used least recently go.
"""

import contextlib
import logging
import os
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from service.engine.arrays import Float32Array

__all__ = ["DEFAULT_SIZE", "VectorCache"]

logger = logging.getLogger(__name__)

DEFAULT_SIZE = 4 * 10**9
"""Bytes that the files of a folder have together: 7000 images of the recipe `best`."""

Key = bytes

_SUFFIX = ".vectors"
_UNFINISHED = "unfinished-"
_FORGOTTEN = 24 * 3600.0  # seconds after which an unfinished file is nobody's any more
_ENTRY = np.dtype([("key", "S64"), ("offset", "<u8"), ("size", "<u8"), ("sum", "<u4")])
# At the very end: how many entries the table has, its sum, and what kind of file it is.
_FOOTER = np.dtype([("count", "<u8"), ("sum", "<u4"), ("magic", "S12")])
_MAGIC = b"leafcode-v1."


@dataclass(frozen=True)
class _Entry:
    """Where a vector is, in which file, and the sum of its bytes."""

    file: int
    offset: int
    size: int
    sum: int


class VectorCache:
    """The vectors of a folder, and those that this run adds. Threads may use it at once."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self.limit = folder, limit
        self._entries: dict[Key, _Entry] = {}
        self._files: list[IO[bytes]] = []
        self._used: set[int] = set()
        self._lock = threading.Lock()
        self._new: IO[bytes] | None = None
        self._new_entries: dict[Key, tuple[int, int, int]] = {}

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, limit: int = DEFAULT_SIZE) -> Iterator["VectorCache"]:
        """The cache in a folder, which need not exist; what was added is kept at the end.

        What was added until an error or an interruption is kept too.
        """
        cache = cls(folder, limit)
        cache._open()
        try:
            yield cache
        finally:
            cache._close()

    def get(self, key: Key) -> Float32Array | None:
        """The vector of a key; None where there is none, or where it is damaged."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        data = os.pread(self._files[entry.file].fileno(), entry.size, entry.offset)
        if len(data) != entry.size or zlib.crc32(data) != entry.sum:
            logger.warning("a vector of %s is damaged and computed again", self._folder)
            return None
        self._used.add(entry.file)
        return np.frombuffer(data, np.float32)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def add(self, key: Key, vector: Float32Array) -> None:
        """Keep a vector, unless this run has added as much as the folder may have."""
        data = vector.tobytes()
        with self._lock:
            if self._new is None or key in self._new_entries:
                return
            offset = self._new.tell()
            try:
                if offset + len(data) <= self.limit:
                    self._new.write(data)
                    self._new_entries[key] = (offset, len(data), zlib.crc32(data))
            except OSError as error:
                self._give_up(error)

    def _open(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._new = tempfile.NamedTemporaryFile(  # noqa: SIM115
                dir=self._folder, prefix=_UNFINISHED, delete=False
            )
        except OSError as error:
            logger.warning("%s cannot keep pooled vectors: %s", self._folder, error)
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            self._read(path)

    def _read(self, path: Path) -> None:
        """Remember where the vectors of a file are; nothing of a file that is not whole."""
        try:
            file = path.open("rb")
        except OSError:  # removed by another run meanwhile, or not for this user
            return
        table = _table(file)
        if table is None:
            logger.warning("%s is no file of vectors and is left out", path)
            file.close()
            return
        number = len(self._files)
        self._files.append(file)
        for key, offset, size, total in table.tolist():
            self._entries[key] = _Entry(number, offset, size, total)

    def _close(self) -> None:
        for number in self._used:  # the least recently used ones go first
            with contextlib.suppress(OSError):
                os.utime(self._files[number].name)
        for file in self._files:
            file.close()
        if self._new is not None:
            self._publish(self._new)

    def _publish(self, file: IO[bytes]) -> None:
        unfinished = Path(file.name)
        try:
            if self._new_entries:
                _write_table(file, self._new_entries)
                os.fsync(file.fileno())
                size = file.tell()
                self._make_room(size)
                random = unfinished.name.removeprefix(_UNFINISHED)
                unfinished.replace(self._folder / f"{time.time_ns()}-{random}{_SUFFIX}")
        except OSError as error:
            logger.warning("%s cannot keep pooled vectors: %s", self._folder, error)
        finally:
            file.close()
            unfinished.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        """Remove files until there is room for so many bytes."""
        files = []
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):  # another run may make room too
                status = path.stat()
                if path.suffix == _SUFFIX:
                    files.append((status.st_mtime_ns, status.st_size, path))
                elif path.name.startswith(_UNFINISHED):
                    _remove_forgotten(path, status.st_mtime)
        total = size + sum(each for _, each, _ in files)
        for _, each, path in sorted(files):
            if total <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= each

    def _give_up(self, error: OSError) -> None:
        """Keep nothing more of this run."""
        logger.warning("%s cannot keep pooled vectors: %s", self._folder, error)
        assert self._new is not None  # noqa: S101  # it was written to
        self._new.close()
        Path(self._new.name).unlink(missing_ok=True)
        self._new = None


def _write_table(file: IO[bytes], entries: dict[Key, tuple[int, int, int]]) -> None:
    table = np.array([(key, *place) for key, place in entries.items()], _ENTRY)
    data = table.tobytes()
    file.write(data)
    file.write(np.array((len(table), zlib.crc32(data), _MAGIC), _FOOTER).tobytes())
    file.flush()


def _table(file: IO[bytes]) -> npt.NDArray[np.void] | None:
    """The table at the end of a file; None if there is none."""
    end = file.seek(0, os.SEEK_END) - _FOOTER.itemsize
    footer = np.frombuffer(os.pread(file.fileno(), _FOOTER.itemsize, max(end, 0)), np.uint8)
    if end < 0 or len(footer) != _FOOTER.itemsize:
        return None
    count, total, magic = footer.view(_FOOTER)[0].tolist()
    start = end - count * _ENTRY.itemsize
    if magic != _MAGIC or start < 0:
        return None
    data = os.pread(file.fileno(), end - start, start)
    if len(data) != end - start or zlib.crc32(data) != total:
        return None
    return np.frombuffer(data, _ENTRY)


def _remove_forgotten(path: Path, changed: float) -> None:
    if time.time() - changed > _FORGOTTEN:
        path.unlink(missing_ok=True)
