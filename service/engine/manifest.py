"""`manifest.json`: what a bundle says about itself.

The text is canonical JSON, and its `digest` covers every other member, so that one
changed byte anywhere in the file shows. Reading returns typed values or raises
`BundleError` with a sentence that names the member.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar, cast

from service.engine.config import EngineConfig
from service.engine.errors import BundleError

__all__ = ["FORMAT_VERSION", "Manifest", "Probe", "TensorSpec", "parse_manifest"]

FORMAT_VERSION = 2

Json = dict[str, object]
Value = TypeVar("Value")


@dataclass(frozen=True)
class TensorSpec:
    """Type and shape that a tensor must have."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


@dataclass(frozen=True)
class Probe:
    """An encoded image and the scores that the bundle gave it when it was trained."""

    image: bytes
    scores: tuple[float, ...]


@dataclass(frozen=True)
class Manifest:
    """Everything about a bundle except its tensors.

    `files` maps file names to SHA-256 digests. `provenance` and `quality` are for
    people and reports: the engine does not read them.
    """

    name: str
    version: int
    created: str
    config: EngineConfig
    labels: tuple[str, ...]
    probes: tuple[Probe, ...] = ()
    provenance: Json = field(default_factory=dict)
    quality: Json = field(default_factory=dict)
    tensors: Mapping[str, TensorSpec] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION
    digest: str = ""

    def sealed(self) -> "Manifest":
        """The same manifest with its digest computed."""
        return replace(self, digest=_digest(self.to_json()))

    def to_json(self) -> Json:
        """The manifest as plain JSON values."""
        return {
            "format_version": self.format_version,
            "name": self.name,
            "version": self.version,
            "created": self.created,
            "config": self.config.to_json(),
            "labels": list(self.labels),
            "provenance": self.provenance,
            "quality": self.quality,
            "tensors": {
                name: {"dtype": spec.dtype, "shape": list(spec.shape)}
                for name, spec in self.tensors.items()
            },
            "files": {name: {"sha256": digest} for name, digest in self.files.items()},
            "probes": [
                {"image": base64.b64encode(probe.image).decode(), "scores": list(probe.scores)}
                for probe in self.probes
            ],
            "digest": self.digest,
        }

    def to_bytes(self) -> bytes:
        """The file's exact bytes."""
        return _canonical(self.to_json())


def parse_manifest(data: bytes, where: str) -> Manifest:
    """The manifest in `data`; `where` names the file in error messages."""
    document = _load(data, where)
    version = _member(document, "format_version", int, where)
    if version != FORMAT_VERSION:
        is_old = 1 <= version < FORMAT_VERSION
        hint = "; older bundles are not read any more, train it again" if is_old else ""
        raise BundleError(f"{where}: format_version is {version}, expected {FORMAT_VERSION}{hint}")
    manifest = _from_json(document, where)
    unknown = sorted(set(document) - {item.name for item in fields(Manifest)})
    if unknown:
        raise BundleError(f"{where}: unknown members {', '.join(unknown)}")
    # Of the document itself, not of `manifest`: bundles from before a member was added
    # to the format keep the bytes they were written with.
    if manifest.digest != _digest(document) or _canonical(document) != data:
        raise BundleError(
            f"{where}: the content does not match its own digest, "
            "expected the bytes that the trainer wrote; the file was damaged or edited"
        )
    return manifest


def _load(data: bytes, where: str) -> Json:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise BundleError(f"{where}: found {type(document).__name__}, expected a JSON object")
    return document


def _from_json(document: Json, where: str) -> Manifest:
    return Manifest(
        name=_member(document, "name", str, where),
        version=_member(document, "version", int, where),
        created=_member(document, "created", str, where),
        config=_config(_member(document, "config", dict, where), where),
        labels=_labels(_member(document, "labels", list, where), where),
        probes=tuple(_probe(item, where) for item in _member(document, "probes", list, where)),
        provenance=_member(document, "provenance", dict, where),
        quality=_member(document, "quality", dict, where),
        tensors={
            name: _spec(item, where)
            for name, item in _member(document, "tensors", dict, where).items()
        },
        files={
            name: _member(_object(item, f"files.{name}", where), "sha256", str, where)
            for name, item in _member(document, "files", dict, where).items()
        },
        digest=_member(document, "digest", str, where),
    )


def _member(document: Json, name: str, kind: type[Value], where: str) -> Value:
    value = document.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        found = "nothing" if name not in document else type(value).__name__
        raise BundleError(f"{where}: member {name!r} is {found}, expected {kind.__name__}")
    return value


def _object(value: object, name: str, where: str) -> Json:
    return _member({name: value}, name, cast(type[Json], dict), where)


def _config(document: Json, where: str) -> EngineConfig:
    try:
        return EngineConfig.from_json(document)
    except (TypeError, ValueError) as error:
        raise BundleError(f"{where}: config: {error}") from error


def _labels(items: list[object], where: str) -> tuple[str, ...]:
    labels = tuple(item for item in items if isinstance(item, str))
    if len(labels) != len(items) or len(set(labels)) != len(labels) or len(labels) < 2:
        raise BundleError(f"{where}: labels must be at least two different strings")
    return labels


def _probe(item: object, where: str) -> Probe:
    document = _object(item, "probe", where)
    try:
        image = base64.b64decode(_member(document, "image", str, where), validate=True)
        scores = tuple(float(score) for score in _member(document, "scores", list, where))
    except (binascii.Error, ValueError, TypeError, OverflowError) as error:
        raise BundleError(f"{where}: probe: {error}") from error
    return Probe(image, scores)


def _spec(item: object, where: str) -> TensorSpec:
    document = _object(item, "tensor", where)
    shape = _member(document, "shape", list, where)
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise BundleError(f"{where}: tensor shape is {shape}, expected whole numbers")
    return TensorSpec(_member(document, "dtype", str, where), tuple(shape))


def _canonical(document: Json) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def _digest(document: Json) -> str:
    others = {name: value for name, value in document.items() if name != "digest"}
    return hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()
