"""`--cache`, `--cache-size` and `--no-cache`: what commands keep on disk between runs.

Pooled vectors, which the next run on the same images needs again, and what unfinished fits have
learned.
"""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import ConfigError
from trainer.vector_cache import DEFAULT_SIZE, VectorCache
from trainer.vectors import caching

__all__ = ["add_cache_options", "cached_vectors", "default_folder", "unfinished_fits"]

_GIGABYTE = 10**9


def add_cache_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command that computes pooled vectors."""
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="FOLDER",
        help="keeps pooled vectors, so that the next run on the same images is fast, and what "
        "unfinished fits have learned [leafcode/trainer in the user's folder for caches]",
    )
    parser.add_argument(
        "--cache-size",
        type=float,
        default=DEFAULT_SIZE / _GIGABYTE,
        metavar="GB",
        help="most that pooled vectors may take there; those used least recently go "
        f"[{DEFAULT_SIZE / _GIGABYTE:g}]",
    )
    parser.add_argument("--no-cache", action="store_true", help="keep nothing, read nothing")


@contextmanager
def cached_vectors(options: argparse.Namespace) -> Iterator[None]:
    """Pooled vectors are kept as the options say, until the end of the block."""
    if not options.cache_size >= 0:
        raise ConfigError(
            f"--cache-size is {options.cache_size:g}, expected a number of gigabytes of at least 0"
        )
    if options.cache is not None and options.cache.exists() and not options.cache.is_dir():
        raise ConfigError(f"--cache {options.cache} is a file, expected a folder or a new name")
    if options.no_cache:
        yield
        return
    size = int(options.cache_size * _GIGABYTE)
    folder = (options.cache or default_folder()) / "vectors"
    with VectorCache.opened(folder, size) as vectors, caching(vectors):
        yield


def unfinished_fits(options: argparse.Namespace) -> Path | None:
    """The folder for what unfinished fits have learned; None if nothing is kept."""
    return None if options.no_cache else (options.cache or default_folder()) / "fits"


def default_folder() -> Path:
    """`leafcode/trainer` in the user's folder for caches."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "leafcode" / "trainer"
