"""Compiled kernels on disk: read wherever they are, kept wherever that is possible.

numba's own cache has one folder, the first that it can write. A service that runs as
another user than the one who prepared its kernels, or on a read-only file system, would
compile them again, at every start if it has no home folder either. Here all folders are
read, and the first that can be written keeps what had to be compiled.
"""

import contextlib
import hashlib
import inspect
import logging
import os
import pickle
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self, cast

from numba import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.runtime.nrt import rtsys
from numba.misc.appdirs import AppDirs

__all__ = ["KernelCache", "can_keep_kernels"]

logger = logging.getLogger(__name__)


class _SealedFiles(IndexDataCacheFile):
    """numba's files of one kernel, each behind its own SHA-256.

    numba's bare ones were unpickled and run whatever they had become: of 60 flipped bits in
    machine code, eight ended the process.
    """

    def _load_index(self) -> object:
        try:
            version, index = pickle.loads(_unsealed(Path(self._index_path)))  # noqa: S301
        except FileNotFoundError:
            return {}
        if version != self._version:  # the rest may not be for this version to unpickle
            return {}
        stamp, overloads = pickle.loads(index)  # noqa: S301
        return overloads if stamp == self._source_stamp else {}

    def _save_index(self, overloads: object) -> None:
        index = self._dump((self._source_stamp, overloads))
        self._write(self._index_path, self._dump((self._version, index)))

    def _load_data(self, name: str) -> object:
        return pickle.loads(_unsealed(Path(self._data_path(name))))  # noqa: S301

    def _save_data(self, name: str, data: object) -> None:
        self._write(self._data_path(name), self._dump(data))

    def _write(self, path: str, data: bytes) -> None:
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)


def _unsealed(path: Path) -> bytes:
    """What stands behind the digest of a file; raises `ValueError` unless they agree."""
    content = path.read_bytes()
    size = hashlib.sha256().digest_size
    digest, data = content[:size], content[size:]
    if hashlib.sha256(data).digest() != digest:
        raise ValueError(f"{path.name} does not match its own SHA-256")
    return data


class _Folders:
    """The files of one kernel in several folders, as one of numba's `IndexDataCacheFile`."""

    def __init__(self, folders: Sequence[Path], name: str, stamp: object) -> None:
        self._files = {folder: _SealedFiles(str(folder), name, stamp) for folder in folders}

    def load(self, key: object) -> object:
        """The data of a signature from the first folder that has them, or None."""
        for folder, file in self._files.items():
            try:
                data = file.load(key)
            except OSError:
                continue  # not for this user to read
            except Exception as error:  # noqa: BLE001
                logger.warning(
                    "kernel cache %s is damaged, compiling again: %r", str(folder), error
                )
                with contextlib.suppress(OSError):
                    file.flush()
                continue
            if data is not None:
                return data
        return None

    def save(self, key: object, data: object) -> None:
        """Keep the data of a signature in the first folder that can be written."""
        for folder, file in self._files.items():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                file.save(key, data)
            except OSError:
                continue
            return
        _warn_of_compiling_again(", ".join(map(str, self._files)))

    def flush(self) -> None:
        """Forget the data of all signatures, as far as they can be written."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.flush()


class _Locator:
    """What numba asks about a kernel's source; where the cache is, `_folders` says."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._py_file = file

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Self:
        """The locator of a function that is defined in a file."""
        return cls(function, file)

    def get_cache_path(self) -> str:
        """The folder beside the source."""
        return str(_beside(Path(self._py_file)))

    def get_source_stamp(self) -> tuple[str, str]:
        """A digest of all that the machine code depends on."""
        return _stamp(Path(self._py_file))

    def get_disambiguator(self) -> str:
        """What distinguishes kernels of the same name."""
        return str(self._line)

    def ensure_cache_path(self) -> None:
        """Nothing: a folder is made when something is written to it."""


class _Naming(CompileResultCacheImpl):
    """How a kernel's files are called and what they hold, as numba has it."""

    _locator_classes = [_Locator]  # noqa: RUF012


class KernelCache(FunctionCache):
    """The machine code of one kernel. Whatever is wrong on disk costs time, not the start.

    numba's own (`cache=True`) raises whatever reading or writing raises, out of the
    first call of the kernel. It also looks for changes in a kernel's own file only;
    this one also in those that are compiled into kernels of other files.
    """

    _impl_class = _Naming

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        source = Path(inspect.getfile(function))
        files = _Folders(_folders(source), self._impl.filename_base, _stamp(source))
        self._cache_file = cast(IndexDataCacheFile, files)

    def load_overload(self, sig: object, target_context: object) -> object:
        """Machine code from disk, or None: compile."""
        try:
            # All that machine code needs. numba's own also imports whatever the compiler can
            # translate, and with it SciPy's BLAS: a quarter of a second and 25 MB a start.
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001
            logger.warning("kernel cache is damaged, compiling again: %r", error)
            self.flush()
            return None

    def save_overload(self, sig: object, data: object) -> None:
        """Keep machine code for the next start, if that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:  # noqa: BLE001
            logger.warning("a compiled kernel cannot be written: %r", error)


def can_keep_kernels() -> bool:
    """Whether what is compiled is there at the next start, as far as permissions tell."""
    folders = _folders(Path(__file__).parent / "kernels" / "any.py")
    existing = (next(path for path in (f, *f.parents) if path.exists()) for f in folders)
    return any(path.is_dir() and os.access(path, os.W_OK) for path in existing)


def _folders(source: Path) -> list[Path]:
    """Where NUMBA_CACHE_DIR says, else beside the source or in the user's cache."""
    parent = source.resolve().parent
    name = f"{parent.name}_{hashlib.sha256(os.fsencode(parent)).hexdigest()[:16]}"
    configured: str = cast(Any, config).CACHE_DIR
    if configured:
        return [Path(configured, name)]
    user_wide = Path(AppDirs("numba", appauthor=False).user_cache_dir, name)
    # The home folder of a user without an entry in the system's list is a bare "~".
    homes = [user_wide] if user_wide.is_absolute() else []
    return [_beside(source), *homes]


def _beside(source: Path) -> Path:
    return source.parent / "__pycache__"


def _stamp(source: Path) -> tuple[str, str]:
    return _digest(source), _shared_stamp()


@cache
def _digest(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


@cache
def _shared_stamp() -> str:
    """Digest of the files with the compiler's flags and with what other kernels use."""
    here = Path(__file__).parent
    files = (here / "arrays.py", here / "compiling.py", *sorted(here.glob("kernels/*.py")))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@cache  # Once: a second kernel has the same to say.
def _warn_of_compiling_again(folders: str) -> None:
    logger.warning(
        "the kernels are compiled again at every start, because none of %s can be written; "
        "set NUMBA_CACHE_DIR to a folder that can",
        folders,
    )
