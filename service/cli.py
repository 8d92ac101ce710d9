"""The commands of `python -m service`: `serve`, `classify`, `explain`, `health` and others.

Results go to standard output, everything else to standard error. Exit codes: 0 done,
1 something could not be done, 2 wrong arguments or settings.
"""

# A command's own module is imported when it is asked for: `health`, which runs every few
# seconds, needs neither numpy nor the load test, and those take as long as all of the rest.
# ruff: noqa: PLC0415

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from service import __version__
from service.engine import LeafcodeError
from service.errors import SettingsError

__all__ = ["main"]

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

_EXAMPLES = """\
examples:
  python -m service serve
  python -m service serve --models ./models --port 9000
  python -m service classify photo.jpg drawing.png --top-k 3
  python -m service explain photo.jpg --out overlay.png
  curl --data-binary @photo.jpg http://127.0.0.1:8000/v1/classify
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser(*arguments[:1]).parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        code = command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has enough. What is buffered must not fail at the very end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except SettingsError as error:
        print(f"leafcode: {error}", file=sys.stderr)
        return 2
    except LeafcodeError as error:
        print(f"leafcode: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


class _Parser(argparse.ArgumentParser):
    """Takes options by their whole names only, here and in all commands below."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)


def _parser(name: str = "") -> argparse.ArgumentParser:
    """The parser of one command, or of all of them without the name of one."""
    parser: argparse.ArgumentParser = _Parser(
        prog="python -m service",
        description="Image labels and sparse codes, fast, on plain CPUs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"leafcode {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in [_COMMANDS[name]] if name in _COMMANDS else _COMMANDS.values():
        add(commands)
    return parser


def _add_serve(commands: "Commands") -> None:
    from service.serve_command import add_serve

    add_serve(commands)


def _add_classify(commands: "Commands") -> None:
    from service.terminal.classify import add_classify

    add_classify(commands)


def _add_explain(commands: "Commands") -> None:
    from service.terminal.explain import add_explain

    add_explain(commands)


def _add_health(commands: "Commands") -> None:
    from service.health import add_health

    add_health(commands)


def _add_settings(commands: "Commands") -> None:
    from service.settings_table import add_settings

    add_settings(commands)


def _add_loadtest(commands: "Commands") -> None:
    from service.loadtest.options import add_loadtest

    add_loadtest(commands)


def _add_soak(commands: "Commands") -> None:
    from service.loadtest.cli import add_soak

    add_soak(commands)


def _add_flood(commands: "Commands") -> None:
    from service.loadtest.cli import add_flood

    add_flood(commands)


def _add_chaos(commands: "Commands") -> None:
    from service.loadtest.chaos.cli import add_chaos

    add_chaos(commands)


def _add_capacity(commands: "Commands") -> None:
    from service.capacity.cli import add_capacity

    add_capacity(commands)


def _add_warm(commands: "Commands") -> None:
    parser = commands.add_parser("warm", help="compile the kernels, once for this machine")
    parser.set_defaults(command=_warm)


def _warm(_: argparse.Namespace) -> int:
    from service.observability.logs import start_logging
    from service.pool.warmup import warm

    start_logging("info")
    print(f"kernels ready after {warm():.1f} s")
    return 0


_COMMANDS: dict[str, Callable[["Commands"], None]] = {
    "serve": _add_serve,
    "classify": _add_classify,
    "explain": _add_explain,
    "health": _add_health,
    "settings": _add_settings,
    "loadtest": _add_loadtest,
    "soak": _add_soak,
    "flood": _add_flood,
    "chaos": _add_chaos,
    "capacity": _add_capacity,
    "warm": _add_warm,
}
