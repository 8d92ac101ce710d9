"""A model repository: every version of every model below one folder, checked.

`<repository>/<name>/<version>/` with whole-number versions; hidden folders are
bundles that are still being written. After that, names are looked up in a
dictionary and never joined to a path, so no request can reach another file.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from service.engine import BundleError, Manifest, read_bundle
from service.engine.bundle import MANIFEST_FILE, MODEL_NAME
from service.errors import UnknownModelError

__all__ = ["Model", "ModelKey", "Repository"]

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
class Repository:
    """Models by key, at least one."""

    models: Mapping[ModelKey, Model]

    @classmethod
    def load(cls, folder: Path) -> "Repository":
        """Every version below `folder`; raises `BundleError` if one of them is not sound."""
        models = {key: _check(key, path) for key, path in _scan(folder)}
        if not models:
            raise BundleError(f"{folder}: no bundle found, expected {_advice(folder)}")
        return cls(models)

    @property
    def keys(self) -> list[ModelKey]:
        """What is loaded, by name and then by version."""
        return sorted(self.models)

    @property
    def default_name(self) -> str:
        """The model of requests that name none: the first by name."""
        return self.keys[0].name

    def versions(self, name: str) -> list[int]:
        """Loaded versions of a model, lowest first; empty if it is unknown."""
        return [key.version for key in self.keys if key.name == name]

    def find(self, name: str | None = None, version: int | None = None) -> Model:
        """A model by name; its highest version, and the default model, unless given."""
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
    manifest = read_bundle(path).manifest
    found = ModelKey.of(manifest)
    if found != key:
        raise BundleError(f"{path / MANIFEST_FILE}: says it is {found}, its folder says {key}")
    logger.info("found %s, %d labels, in %s", key, len(manifest.labels), path)
    return Model(path.absolute(), manifest)


def _advice(folder: Path) -> str:
    """The layout, or the folder that was probably meant."""
    if (folder / MANIFEST_FILE).exists():
        return f"a model repository; this is a single version, did you mean {folder.parent.parent}?"
    if any(folder.glob(f"*/{MANIFEST_FILE}")):
        return f"a model repository; this is a single model, did you mean {folder.parent}?"
    return f"<name>/<version>/{MANIFEST_FILE} below it"
