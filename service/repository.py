"""A model repository: every version of every model below one folder, checked.

`<repository>/<name>/<version>/` with whole-number versions; hidden folders are
bundles that are still being written. After that, names are looked up in a
dictionary and never joined to a path, so no request can reach another file.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from service.engine import BundleError, Manifest, read_bundle
from service.engine.bundle import MANIFEST_FILE, MODEL_NAME, TENSORS_FILE, read_manifest
from service.errors import UnknownModelError

__all__ = ["Model", "ModelKey", "Rejection", "Repository", "VersionFiles", "read_model", "survey"]

logger = logging.getLogger(__name__)

_VERSION = re.compile(r"0|[1-9][0-9]{0,8}")

# Names from requests are quoted in messages, but no more of them than this.
_QUOTED_LENGTH = 128


@dataclass(frozen=True, order=True)
class ModelKey:
    """One version of one model."""

    name: str
    version: int

    @classmethod
    def of(cls, manifest: Manifest) -> "ModelKey":
        """The key of the bundle that `manifest` describes."""
        return cls(manifest.name, manifest.version)

    def __str__(self) -> str:
        return f"{self.name} version {self.version}"


@dataclass(frozen=True)
class Model:
    """A sound bundle: where it is and what it says about itself. Workers load it by path."""

    path: Path
    manifest: Manifest


@dataclass(frozen=True)
class Rejection:
    """A version that was found later and is not served: why, and since when (ISO 8601)."""

    key: ModelKey
    error: str
    since: str


@dataclass(frozen=True)
class VersionFiles:
    """A version folder at one moment; another fingerprint means another content."""

    path: Path
    fingerprint: tuple[int, ...]


@dataclass(frozen=True)
class Repository:
    """Models by key, at least one. It never changes: a reload makes another one."""

    models: Mapping[ModelKey, Model]
    rejected: tuple[Rejection, ...] = ()

    @classmethod
    def load(cls, folder: Path) -> "Repository":
        """Every version below `folder`; raises `BundleError` if one of them is not sound."""
        models = {key: _check(key, path) for key, path in _scan(folder)}
        if not models:
            raise BundleError(f"{folder}: no bundle found, expected {_advice(folder)}")
        return cls(models)

    @cached_property
    def keys(self) -> list[ModelKey]:
        """What is loaded, by name and then by version."""
        return sorted(self.models)

    @cached_property
    def manifests(self) -> list[Manifest]:
        """What the loaded bundles say about themselves, in the order of `keys`."""
        return [self.models[key].manifest for key in self.keys]

    @cached_property
    def default_name(self) -> str:
        """The model of requests that name none: the first by name."""
        return self.keys[0].name

    @cached_property
    def default(self) -> Model:
        """The highest version of that model."""
        return self.find(self.default_name)

    def versions(self, name: str) -> list[int]:
        """Loaded versions of a model, lowest first; empty if it is unknown."""
        return [key.version for key in self.keys if key.name == name]

    def find(self, name: str | None = None, version: int | None = None) -> Model:
        """A model by name; its highest version, and the default model, unless given."""
        if name is None and version is None:
            return self.default
        name = self.default_name if name is None else name
        versions = self.versions(name)
        if not versions:
            known = ", ".join(dict.fromkeys(key.name for key in self.keys))
            raise UnknownModelError(
                f"model {name[:_QUOTED_LENGTH]!r} is not loaded, expected one of: {known}"
            )
        key = ModelKey(name, versions[-1] if version is None else version)
        if key not in self.models:
            known = ", ".join(map(str, versions))
            raise UnknownModelError(
                f"version {version} of model {name!r} is not loaded, expected one of: {known}"
            )
        return self.models[key]


def survey(folder: Path) -> dict[ModelKey, VersionFiles]:
    """What is below `folder` now; what is not, or not yet, a version is passed over.

    Raises `BundleError` if the folder cannot be read, which says nothing about versions.
    """
    found = {}
    names = [model.name for model in _folders(folder) if MODEL_NAME.fullmatch(model.name)]
    versions = [version for name in names for version in _folders(folder / name)]
    for version in versions:
        if _VERSION.fullmatch(version.name) and (fingerprint := _fingerprint(version)):
            key = ModelKey(version.parent.name, int(version.name))
            found[key] = VersionFiles(version.absolute(), fingerprint)
    return found


def _fingerprint(version: Path) -> tuple[int, ...]:
    """Which files these are and when they changed; empty without a manifest."""
    numbers: list[int] = []
    for name in (MANIFEST_FILE, TENSORS_FILE):
        try:
            found = (version / name).stat()
        except FileNotFoundError:
            return tuple(numbers)
        except OSError as error:
            raise BundleError(f"{version / name}: cannot be read ({error.strerror})") from error
        numbers += (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return tuple(numbers)


def read_model(key: ModelKey, path: Path) -> Model:
    """A version by its manifest alone: the tensors are for a worker to judge.

    Mapping a file that another process cuts short ends the process that mapped it.
    """
    return _model(key, path, read_manifest(path))


def _scan(repository: Path) -> Iterator[tuple[ModelKey, Path]]:
    for model in _folders(repository):
        for version in _folders(model):
            if not MODEL_NAME.fullmatch(model.name):
                raise BundleError(
                    f"{model}: not a model name, expected letters, digits, '.', '_' and '-'"
                )
            if not _VERSION.fullmatch(version.name):
                raise BundleError(f"{version}: not a version, expected a whole number")
            yield ModelKey(model.name, int(version.name)), version


def _folders(parent: Path) -> list[Path]:
    """Folders below `parent` that are not hidden, in the order of their names."""
    try:
        return sorted(
            path for path in parent.iterdir() if path.is_dir() and not path.name.startswith(".")
        )
    except OSError as error:
        raise BundleError(
            f"{parent}: cannot be read ({error.strerror}), expected a model repository"
        ) from error


def _check(key: ModelKey, path: Path) -> Model:
    # All but the probes, which need kernels; each worker replays them when it loads.
    model = _model(key, path, read_bundle(path).manifest)
    logger.info("found %s, %d labels, in %s", key, len(model.manifest.labels), path)
    return model


def _model(key: ModelKey, path: Path, manifest: Manifest) -> Model:
    found = ModelKey.of(manifest)
    if found != key:
        raise BundleError(f"{path / MANIFEST_FILE}: says it is {found}, its folder says {key}")
    return Model(path.absolute(), manifest)


def _advice(folder: Path) -> str:
    """The layout, or the folder that was probably meant."""
    if (folder / MANIFEST_FILE).exists():
        return f"a model repository; this is a single version, did you mean {folder.parent.parent}?"
    if any(folder.glob(f"*/{MANIFEST_FILE}")):
        return f"a model repository; this is a single model, did you mean {folder.parent}?"
    return f"<name>/<version>/{MANIFEST_FILE} below it"
