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
from service.errors import SettingsError, UnknownModelError

__all__ = [
    "Model",
    "ModelKey",
    "Rejection",
    "Repository",
    "VersionFiles",
    "is_empty",
    "read_model",
    "survey",
]

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
    """Models by key, at least one. It never changes: a reload makes another one.

    Requests that name no model get the one called `default_name`.
    """

    models: Mapping[ModelKey, Model]
    default_name: str
    rejected: tuple[Rejection, ...] = ()

    @classmethod
    def load(
        cls, folder: Path, default_name: str | None = None, *, check_tensors: bool = True
    ) -> "Repository":
        """Every version below `folder`; the first model by name is the default unless given.

        Raises `BundleError` if a version is not sound, `SettingsError` without the default.
        Tensors that are not checked here are when their model is loaded.
        """
        read = _check if check_tensors else read_model
        models = {key: read(key, path) for key, path in _scan(folder)}
        if not models:
            raise BundleError(f"{folder}: no bundle found, expected {_advice(folder)}")
        names = sorted({key.name for key in models})
        if default_name is not None and default_name not in names:
            raise SettingsError(
                f"LEAFCODE_DEFAULT_MODEL (--default-model) is {default_name!r}, "
                f"expected one of the models in {folder}: {', '.join(names)}"
            )
        return cls(models, default_name or names[0])

    @cached_property
    def keys(self) -> list[ModelKey]:
        """What is loaded, by name and then by version."""
        return sorted(self.models)

    @cached_property
    def manifests(self) -> list[Manifest]:
        """What the loaded bundles say about themselves, in the order of `keys`."""
        return [self.models[key].manifest for key in self.keys]

    @cached_property
    def default_key(self) -> ModelKey | None:
        """The highest version of the default model; none while that is not loaded."""
        return max((key for key in self.keys if key.name == self.default_name), default=None)

    @cached_property
    def default(self) -> Model:
        """The highest version of the default model; raises `UnknownModelError` without one."""
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


def is_empty(folder: Path) -> bool:
    """Whether nothing is below `folder` but what is hidden, and what a new file system has."""
    return all(path.name == "lost+found" for path in _entries(folder))


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
    """Every version in a folder that may hold other things, too, of which each is named."""
    for model in _entries(repository):
        if not model.is_dir():
            _pass_over(model, "not a folder")
        elif not MODEL_NAME.fullmatch(model.name):
            _pass_over(model, "not a model name, expected letters, digits, '.', '_' and '-'")
        else:
            yield from _versions(model)


def _versions(model: Path) -> Iterator[tuple[ModelKey, Path]]:
    entries = _entries(model)
    if not entries:
        _pass_over(model, "no version in it")
    for version in entries:
        if not version.is_dir() or not _VERSION.fullmatch(version.name):
            _pass_over(version, "not a version, expected a folder whose name is a whole number")
        elif not (version / MANIFEST_FILE).exists():
            _pass_over(version, f"no {MANIFEST_FILE} in it")
        else:
            yield ModelKey(model.name, int(version.name)), version


def _pass_over(path: Path, reason: str) -> None:
    logger.warning("%s is passed over: %s", path, reason)


def _folders(parent: Path) -> list[Path]:
    """Folders below `parent` that are not hidden, in the order of their names."""
    return [path for path in _entries(parent) if path.is_dir()]


def _entries(parent: Path) -> list[Path]:
    """All that is below `parent` and not hidden, in the order of its names."""
    try:
        return sorted(path for path in parent.iterdir() if not path.name.startswith("."))
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
