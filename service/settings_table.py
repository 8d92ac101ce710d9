"""`python -m service settings`: all settings as a table, as docker/README.md shows it."""

import argparse
from pathlib import Path
from typing import get_args

from pydantic.fields import FieldInfo

from service.settings import EMBEDDED_MODELS, ENVIRONMENT_ONLY, Settings, allowed

__all__ = ["add_settings", "table"]

_HEAD = ("variable", "default", "allowed", "meaning")


def add_settings(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `settings`."""
    parser = commands.add_parser(
        "settings",
        help="list all settings",
        description="List all settings with their defaults, as a table in Markdown.",
    )
    parser.set_defaults(command=_print)


def _print(_: argparse.Namespace) -> int:
    print(table())  # noqa: T201
    return 0


def table() -> str:
    """Every setting with its default, what is allowed and what it means, in Markdown."""
    fields = Settings.model_fields.items()
    rows = [_HEAD, ("---",) * len(_HEAD), *(_row(name, field) for name, field in fields)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(name: str, field: FieldInfo) -> tuple[str, ...]:
    flag = "; has no flag" if name in ENVIRONMENT_ONLY else ""
    words = f"{field.description}{flag}".replace("<", "\\<")
    return f"`LEAFCODE_{name.upper()}`", _default(field), _allowed(field), words


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    if default == EMBEDDED_MODELS:
        return "the embedded models"
    return "" if default in (None, "") else f"`{default}`"


def _allowed(field: FieldInfo) -> str:
    if field.title is None and set(get_args(field.annotation) or [field.annotation]) & {str, Path}:
        return ""  # anything that its meaning fits
    return allowed(field).removeprefix("a whole number from ").removeprefix("one of ")
