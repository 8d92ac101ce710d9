"""A bundle on disk: `<repository>/<name>/<version>/` with a manifest and tensors.

Reading maps the tensors read-only, so that all processes share one copy, and checks
digests, types, shapes, index ranges and finiteness before anything is used. Files can be
held open, so that they are read again although they were renamed or deleted. Writing
publishes by one rename: a reader sees all of a version or nothing.
"""

import errno
import hashlib
import json
import mmap
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from service.engine.arrays import CACHE_LINE
from service.engine.config import CodesConfig
from service.engine.errors import BundleError, UnreadableBundleError, VersionTakenError
from service.engine.manifest import Manifest, TensorSpec, parse_manifest
from service.engine.tensor_names import block_prefix, expected_tensors

__all__ = [
    "MANIFEST_FILE",
    "MODEL_NAME",
    "TENSORS_FILE",
    "Bundle",
    "BundleFiles",
    "OpenBundle",
    "read_bundle",
    "read_manifest",
    "write_bundle",
]

MANIFEST_FILE = "manifest.json"
TENSORS_FILE = "tensors.safetensors"

# What a model may be called: safe as a folder and in a URL.
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Tensor = npt.NDArray[Any]

# Types that a safetensors file may hold; which one a tensor must have is checked later.
_DTYPES = {
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "BOOL": "bool",
}


@dataclass(frozen=True)
class Bundle:
    """A manifest and the tensors that belong to it, by name."""

    manifest: Manifest
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class BundleFiles:
    """Which files a version is read from; messages name them as those of `folder`."""

    folder: Path
    manifest: Path
    tensors: Path

    @classmethod
    def of(cls, folder: "str | os.PathLike[str] | BundleFiles") -> "BundleFiles":
        """The files in a version folder; files that are known already are themselves."""
        if isinstance(folder, BundleFiles):
            return folder
        path = Path(folder)
        return cls(path, path / MANIFEST_FILE, path / TENSORS_FILE)

    def to_json(self) -> dict[str, str]:
        """Plain values for another process."""
        return {name: str(path) for name, path in vars(self).items()}

    @classmethod
    def from_json(cls, fields: Mapping[str, str]) -> "BundleFiles":
        """The files that `to_json` wrote."""
        return cls(**{name: Path(path) for name, path in fields.items()})


class OpenBundle:
    """The files of a version, held open until `close`, whatever becomes of their names.

    `files` can be read by other processes of this user, too. Where the system does not show
    open files under `/proc`, they are those of the folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._descriptors: list[int] = []
        named = BundleFiles.of(folder)
        try:
            for path in (named.manifest, named.tensors):
                self._descriptors.append(_open(path, path))
        except BaseException:
            self.close()
            raise
        open_files = Path(f"/proc/{os.getpid()}/fd")
        if open_files.exists():
            manifest, tensors = (open_files / str(number) for number in self._descriptors)
            named = BundleFiles(named.folder, manifest, tensors)
        self.files = named

    def close(self) -> None:
        """Close the files; once is enough."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def read_manifest(source: str | os.PathLike[str] | BundleFiles) -> Manifest:
    """The manifest of a version folder, checked by itself; the tensors are not read."""
    files = BundleFiles.of(source)
    where = files.folder / MANIFEST_FILE
    return parse_manifest(_read_manifest(files.manifest, where), str(where))


def read_bundle(source: str | os.PathLike[str] | BundleFiles) -> Bundle:
    """The bundle in a version folder, checked, its tensors memory-mapped."""
    files = BundleFiles.of(source)
    manifest = read_manifest(files)
    where = files.folder / TENSORS_FILE
    mapping = _map(files.tensors, where)
    found = hashlib.sha256(mapping).hexdigest()
    expected = manifest.files.get(TENSORS_FILE)
    if found != expected:
        raise BundleError(
            f"{where}: SHA-256 is {found}, expected {expected}; "
            "the file was damaged or does not belong to this manifest"
        )
    tensors = _view_tensors(files.tensors, where, mapping)
    _check_tensors(manifest, tensors, where)
    return Bundle(manifest, tensors)


def write_bundle(bundle: Bundle, folder: str | os.PathLike[str]) -> Manifest:
    """Write `bundle` as version folder `folder`, which must not exist; its sealed manifest."""
    target = Path(folder)
    if target.exists():
        raise _taken(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        manifest = _write_files(bundle, staging)
        staging.chmod(0o755)
        _publish(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return manifest


def _write_files(bundle: Bundle, staging: Path) -> Manifest:
    tensors_path = staging / TENSORS_FILE
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in bundle.tensors.items()}
    tensors_path.write_bytes(_serialise(tensors))
    manifest = replace(
        bundle.manifest,
        tensors={name: _spec_of(tensor) for name, tensor in tensors.items()},
        files={TENSORS_FILE: hashlib.sha256(tensors_path.read_bytes()).hexdigest()},
    ).sealed()
    (staging / MANIFEST_FILE).write_bytes(manifest.to_bytes())
    for path in (tensors_path, staging / MANIFEST_FILE):
        path.chmod(0o644)
        _flush(path)
    return manifest


def _serialise(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file whose tensors begin at cache lines.

    The library's writer sorts by type and name, which puts the tree's rows of 128 bytes
    across three cache lines instead of two. Tensors that fill whole lines come first.
    """
    names = sorted(
        tensors, key=lambda name: (tensors[name].nbytes % CACHE_LINE != 0, -tensors[name].itemsize)
    )
    kinds = {dtype: kind for kind, dtype in _DTYPES.items()}
    header: dict[str, object] = {}
    end = 0
    for name in names:
        begin, end = end, end + tensors[name].nbytes
        kind, shape = kinds[str(tensors[name].dtype)], tensors[name].shape
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % CACHE_LINE)
    data = (tensors[name].tobytes() for name in names)
    return b"".join([len(text).to_bytes(8, "little"), text, *data])


def _publish(staging: Path, target: Path) -> None:
    _flush(staging)
    try:
        staging.rename(target)
    except OSError as error:
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:  # published by another meanwhile
            raise _taken(target) from error
        raise BundleError(f"{target}: cannot be published: {error}") from error
    _flush(target.parent)


def _taken(target: Path) -> VersionTakenError:
    return VersionTakenError(f"{target}: exists already, expected a new version folder")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _spec_of(tensor: Tensor) -> TensorSpec:
    return TensorSpec(str(tensor.dtype), tensor.shape)


def _open(path: Path, where: Path) -> int:
    """A descriptor of a file; a pipe would keep its reader waiting, so it is rejected."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise _unreadable(where, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"{where}: not a file, expected one of a bundle's version folder")
    return descriptor


def _read_manifest(path: Path, where: Path) -> bytes:
    try:
        with os.fdopen(_open(path, where), "rb") as file:
            return file.read()
    except OSError as error:
        raise _unreadable(where, error) from error


def _unreadable(where: Path, error: OSError) -> BundleError:
    return _error_of(error)(
        f"{where}: cannot be read ({error.strerror}), expected a bundle's version folder"
    )


def _map(path: Path, where: Path) -> mmap.mmap:
    try:
        with os.fdopen(_open(path, where), "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise _error_of(error)(f"{where}: cannot be mapped: {error}") from error


def _error_of(error: OSError | ValueError) -> type[BundleError]:
    """Whose fault it is that a file cannot be read: the bundle's, or the machine's."""
    missing = FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError
    return BundleError if isinstance(error, missing | ValueError) else UnreadableBundleError


def _view_tensors(path: Path, where: Path, mapping: mmap.mmap) -> dict[str, Tensor]:
    """Arrays over the mapping. The library proves the header sound but would copy the data."""
    try:
        with safe_open(path, framework="np"):
            pass
        start = 8 + int.from_bytes(mapping[:8], "little")
        header = json.loads(mapping[8:start])
        header.pop("__metadata__", None)
        return {name: _view(mapping, start, entry) for name, entry in header.items()}
    except OSError as error:
        raise _error_of(error)(f"{where}: cannot be read: {error}") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise BundleError(f"{where}: not a sound safetensors file: {error}") from error


def _view(mapping: mmap.mmap, start: int, entry: dict[str, Any]) -> Tensor:
    dtype = np.dtype(_DTYPES[entry["dtype"]])
    begin, end = entry["data_offsets"]
    flat = np.frombuffer(mapping, dtype, (end - begin) // dtype.itemsize, start + begin)
    return flat.reshape(entry["shape"])


def _check_tensors(manifest: Manifest, tensors: Mapping[str, Tensor], where: Path) -> None:
    expected = expected_tensors(manifest.config, len(manifest.labels))
    if set(tensors) != set(expected) or set(manifest.tensors) != set(expected):
        raise BundleError(
            f"{where}: holds the tensors {sorted(tensors)}, expected {sorted(expected)}"
        )
    for name, tensor in tensors.items():
        _check_tensor(name, tensor, expected[name], manifest, where)
    for number, block in enumerate(manifest.config.blocks):
        if isinstance(block, CodesConfig):
            name = f"{block_prefix(number)}table"
            _check_table(name, tensors[name], block.n_atoms, where)


def _check_tensor(
    name: str, tensor: Tensor, expected: TensorSpec, manifest: Manifest, where: Path
) -> None:
    for found in (_spec_of(tensor), manifest.tensors[name]):
        if found != expected:
            raise BundleError(f"{where}: tensor {name} is {found}, expected {expected}")
    if tensor.dtype == np.float32 and not np.isfinite(tensor).all():
        raise BundleError(f"{where}: tensor {name} has values that are not finite")
    if name == "classifier_scales" and tensor.min() < 0:
        raise BundleError(
            f"{where}: tensor {name} has the value {tensor.min():.3g}, expected none below zero"
        )


def _check_table(name: str, table: Tensor, n_atoms: int, where: Path) -> None:
    if table.min() < 0 or table.max() >= n_atoms:
        raise BundleError(
            f"{where}: {name} names atoms {table.min()} to {table.max()}, "
            f"expected 0 to {n_atoms - 1}"
        )
    repeated = (np.diff(np.sort(table, axis=1), axis=1) == 0).any(axis=1)
    if repeated.any():
        raise BundleError(
            f"{where}: {name} names an atom twice for leaf {int(repeated.argmax())}, "
            "expected different atoms"
        )
