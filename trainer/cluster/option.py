"""`--cluster`: which workers a command uses in place of the cores of this machine."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from trainer.cluster.connection import LOCAL, connected
from trainer.errors import ConfigError
from trainer.workplace import ThisMachine, Workplace

__all__ = ["add_cluster_option", "find_from_anywhere", "workplace_of"]


def add_cluster_option(parser: argparse.ArgumentParser) -> None:
    """Add the option to a command that can do its work on a cluster."""
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help=f"Dask scheduler, such as tcp://10.0.0.1:8786, whose workers do the work, or {LOCAL} "
        "for processes on this machine (extra cluster) [threads of this process]",
    )


def find_from_anywhere(options: argparse.Namespace) -> None:
    """Name images so that workers, which have other current folders, find them too."""
    if options.cluster is not None:
        options.images = options.images.absolute()
        options.labels = options.labels and options.labels.absolute()
        options.unknown = [folder.absolute() for folder in options.unknown]


@contextmanager
def workplace_of(options: argparse.Namespace) -> Iterator[Workplace]:
    """Where a command works, as its options say, until the end of the block."""
    if options.cluster is None:
        yield ThisMachine()
        return
    if options.from_bundle is not None:
        raise ConfigError("--from-bundle with --cluster, expected one of both")
    with connected(options.cluster) as client:
        from trainer.cluster.workplace import ClusterWorkplace  # noqa: PLC0415

        yield ClusterWorkplace(client, is_local=options.cluster == LOCAL)
