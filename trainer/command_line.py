"""What all commands share: whole names of options, and errors that are one sentence."""

import argparse
import importlib.util
import logging
import sys
from collections.abc import Sequence
from typing import Any

from service.engine import LeafcodeError
from service.engine.cpu_level import require_cpu_level
from trainer.errors import ConfigError

__all__ = ["command_parser", "run_command"]


class _Parser(argparse.ArgumentParser):
    """Takes options by their whole names only, here and in all commands below."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)


def command_parser() -> tuple[argparse.ArgumentParser, Any]:
    """A parser without commands yet, and what they are added to."""
    parser: argparse.ArgumentParser = _Parser(
        prog="python -m trainer", description="Train and evaluate Leafcode bundles."
    )
    return parser, parser.add_subparsers(required=True, metavar="command")


def run_command(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    """Run one command; the exit code is 0, 1 for bad data, 2 for bad usage."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    options = parser.parse_args(typed)
    options.typed = typed
    _require_libraries()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        require_cpu_level()
        options.run(options)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except LeafcodeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return 130
    return 0


def _require_libraries() -> None:
    """Raise `ModuleNotFoundError` now, not in the middle of training, if one is missing."""
    for name in ("pyarrow", "scipy", "sklearn", "threadpoolctl", "tqdm"):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
