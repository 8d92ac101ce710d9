"""Settings as flags of commands, with the words and the defaults of `Settings`."""

import argparse
from pathlib import Path

from service.settings import ENVIRONMENT_ONLY, Settings, allowed

__all__ = ["FLAGS", "add_setting", "tell_environment_only"]

FLAGS = tuple(name for name in Settings.model_fields if name not in ENVIRONMENT_ONLY)
"""The settings that have a flag."""


def add_setting(parser: argparse.ArgumentParser, name: str) -> None:
    """A flag for a setting. Its value stays text, so that `Settings` alone judges it."""
    field = Settings.model_fields[name]
    default = field.get_default(call_default_factory=True, validated_data={})
    told = field.title or field.annotation not in (str, Path)
    values = f"; {allowed(field)}" if told else ""
    shown = "none" if default in (None, "") else default
    parser.add_argument(
        f"--{name.replace('_', '-')}",
        metavar=name.rpartition("_")[2].upper(),
        help=f"{field.description}{values} (LEAFCODE_{name.upper()}, default {shown})",
    )


def tell_environment_only() -> str:
    """What `--help` says about the settings that have no flag."""
    return "\n".join(map(_environment_only, sorted(ENVIRONMENT_ONLY)))


def _environment_only(name: str) -> str:
    field = Settings.model_fields[name]
    return (
        f"In the environment only: LEAFCODE_{name.upper()}, {field.description}; "
        f"{allowed(field)} (default none)."
    )
