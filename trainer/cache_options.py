"""`--cache`, `--cache-size` and `--no-cache`: where commands keep pooled vectors between runs."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.errors import ConfigError
from trainer.vector_cache import DEFAULT_SIZE, VectorCache, default_folder
from trainer.vectors import caching

__all__ = ["add_cache_options", "cached_vectors"]

_GIGABYTE = 10**9


def add_cache_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command that computes pooled vectors."""
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="FOLDER",
        help="where pooled vectors are kept, so that the next run on the same images is fast "
        "[leafcode/vectors in the user's folder for caches]",
    )
    parser.add_argument(
        "--cache-size",
        type=float,
        default=DEFAULT_SIZE / _GIGABYTE,
        metavar="GB",
        help="most that the folder may hold; the vectors used least recently go "
        f"[{DEFAULT_SIZE / _GIGABYTE:g}]",
    )
    parser.add_argument("--no-cache", action="store_true", help="keep and read no pooled vectors")


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
    folder = options.cache or default_folder()
    size = int(options.cache_size * _GIGABYTE)
    with VectorCache.opened(folder, size) as vectors, caching(vectors):
        yield
