"""Where a new bundle goes: the next version of a model that others may train too."""

import os
from dataclasses import replace
from pathlib import Path

from service.engine import Bundle, Manifest, VersionTakenError, write_bundle
from service.engine.bundle import MODEL_NAME
from trainer.errors import ConfigError

__all__ = ["UNPUBLISHED", "check_target", "publish"]

# The version of a bundle that has none yet: they are counted from one.
UNPUBLISHED = 0


def check_target(out: Path) -> None:
    """Reject a target that cannot be written, before hours of training."""
    if not MODEL_NAME.fullmatch(out.name):
        raise ConfigError(
            f"--out ends in {out.name!r}, expected a model name of letters, digits, . _ and -"
        )
    existing = next(parent for parent in (out, *out.absolute().parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise ConfigError(f"--out {out} cannot be created: {existing} is not a writable folder")


def publish(bundle: Bundle, out: Path) -> tuple[Path, Manifest]:
    """Write `bundle` as the next version of the folder `out`; its folder and manifest.

    Whoever publishes first has the lower version: a number that was taken while this bundle
    was trained or written is left to the other one.
    """
    while True:
        version = _next_version(out)
        numbered = replace(bundle, manifest=replace(bundle.manifest, version=version))
        try:
            return out / str(version), write_bundle(numbered, out / str(version))
        except VersionTakenError:
            continue


def _next_version(out: Path) -> int:
    """One more than the highest version in the folder `out`, which need not exist."""
    taken = [int(path.name) for path in out.glob("*") if path.name.isdecimal()]
    return max(taken, default=UNPUBLISHED) + 1
