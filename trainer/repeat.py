"""The command that trains a model again: as it was typed, or by the settings in its manifest."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.engine import Manifest
from trainer.config import FitConfig
from trainer.reuse import FEATURE_SETTINGS

__all__ = ["TOML_SETTINGS", "RepeatCommand", "recorded_command", "typed_command"]

TOML_SETTINGS = frozenset({"pyramid", "card"})
"""Settings that have no option: they are for files that `--config` names."""

_PROGRAM = ("python", "-m", "trainer")


@dataclass(frozen=True)
class RepeatCommand:
    """A line for a shell, and where it is from."""

    text: str
    origin: str


def typed_command(arguments: Sequence[str]) -> RepeatCommand:
    """The command with these arguments."""
    origin = "As it was typed. The same files give the same tensors, bit for bit, on one machine."
    return RepeatCommand(shlex.join((*_PROGRAM, *arguments)), origin)


def recorded_command(
    manifest: Manifest, images: Path, labels: Path | None, out: Path
) -> RepeatCommand:
    """A command with the settings that a manifest keeps, for images and a model of today."""
    arguments = [
        "fit",
        str(images),
        *(["--labels", str(labels)] if labels else []),
        "--out",
        str(out),
    ]
    reference: Any = manifest.provenance.get("from_bundle")
    if reference:
        folder = out.parent / str(reference["name"]) / str(reference["version"])
        arguments += ["--from-bundle", str(folder)]
    settings: Any = manifest.provenance.get("settings", {})
    chosen = _chosen(settings, FEATURE_SETTINGS if reference else ())
    arguments += _options(chosen)
    in_file = sorted(TOML_SETTINGS & chosen.keys())
    beside = f" A file for --config has to say: {', '.join(in_file)}." if in_file else ""
    unknown = manifest.provenance.get("n_unknown")
    if unknown:
        beside += f" The bundle does not name the folder of the {unknown} images of --unknown."
    origin = f"Made of the settings in the bundle; folders and files are named as today.{beside}"
    return RepeatCommand(shlex.join((*_PROGRAM, *arguments)), origin)


def _chosen(settings: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, Any]:
    """The settings that differ from their defaults."""
    defaults = FitConfig().to_json()
    return {
        name: value
        for name, value in settings.items()
        if value is not None and value != defaults.get(name) and name not in left_out
    }


def _options(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if name not in TOML_SETTINGS:
            for each in value if isinstance(value, list) else [value]:
                yield from (f"--{name.replace('_', '-')}", str(each))
