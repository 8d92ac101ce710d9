"""`python -m service.capacity.waiting_service`: `python -m service serve` with waiting workers."""

import argparse
import sys
from collections.abc import Callable, Sequence

from service.serve_command import add_serve

__all__ = ["main"]

_WORKER = "service.capacity.waiting_worker"


def main(arguments: Sequence[str]) -> int:
    """Serve until stopped; the exit code."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_serve(parser.add_subparsers())
    options = parser.parse_args(["serve", *arguments])
    options.worker = _WORKER
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
