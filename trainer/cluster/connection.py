"""`--cluster`: a connection to the workers that train or classify, here or on other machines.

Workers run the code that is installed where they are. So each of them is asked what that is before
it gets anything to do: one with other sources, or another Python or numba, could answer otherwise
than the rest.
"""

import asyncio
import hashlib
import importlib.util
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numba
import numpy as np

from service import __version__
from trainer.errors import ClusterError, ConfigError
from trainer.parallel import n_threads

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["LOCAL", "connected", "require_cluster_extra"]

LOCAL = "local"
"""In place of an address: a process for each core of this machine, until the end of the command."""

# Seconds until a scheduler that does not answer, or one that has no worker, is given up.
_TIMEOUT = 30

Versions = dict[str, str]


def require_cluster_extra() -> None:
    """Reject a cluster where its libraries are not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise ConfigError(
            "--cluster needs Dask, which is not installed: pip install 'leafcode[cluster]'"
        )


@contextmanager
def connected(cluster: str, timeout: float = _TIMEOUT) -> Iterator["Client"]:
    """A client of the scheduler at an address, or of a cluster on this machine, with workers.

    All of its workers, also those that come later, have this trainer as it is here, and compute
    in one thread a task.
    """
    require_cluster_extra()
    import dask  # noqa: PLC0415
    import distributed  # noqa: F401, PLC0415  # its settings come first, or would go with ours

    # Models of deep trees are larger than the graphs that Dask warns of.
    with (
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "4 GB"}),
        _client(cluster, timeout) as client,
    ):
        _require_workers(client, cluster, timeout)
        _require_same_versions(client)
        yield client


@contextmanager
def _client(cluster: str, timeout: float) -> Iterator["Client"]:
    from distributed import Client, LocalCluster  # noqa: PLC0415

    if cluster == LOCAL:
        with (
            LocalCluster(
                n_workers=n_threads(), threads_per_worker=1, processes=True, dashboard_address=None
            ) as processes,
            Client(processes, set_as_default=False) as client,
        ):
            yield client
        return
    try:
        asyncio.run(_reach(cluster, timeout))
    except (OSError, ValueError) as error:  # a time-out is an OSError
        raise ClusterError(
            f"--cluster {cluster} cannot be reached, expected the address of a Dask scheduler such "
            f"as tcp://10.0.0.1:8786, or {LOCAL}: {error}"
        ) from error
    with Client(cluster, timeout=timeout, set_as_default=False) as client:
        yield client


async def _reach(address: str, timeout: float) -> None:  # noqa: ASYNC109  # Dask's own
    """Connect once: a client that cannot would complain again when it is forgotten."""
    from distributed.comm import connect  # noqa: PLC0415
    from distributed.security import Security  # noqa: PLC0415

    comm = await connect(address, timeout=timeout, **Security().get_connection_args("client"))
    await comm.close()


def _require_workers(client: "Client", cluster: str, timeout: float) -> None:
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        raise ClusterError(
            f"the scheduler {cluster} has no worker after {timeout:g} s, expected one at least"
        ) from error


def _require_same_versions(client: "Client") -> None:
    """Reject workers that have another trainer, or none; make those that come later reject it."""
    from trainer.cluster.worker_setup import WorkerSetup  # noqa: PLC0415

    found = client.run(installed_versions, on_error="return")
    for worker, versions in sorted(found.items()):
        require_same(worker, versions, installed_versions())
    client.register_plugin(WorkerSetup(installed_versions()))


def require_same(worker: str, found: object, expected: Versions) -> None:
    """Raise unless a worker, which may have answered an error, has what is expected."""
    if not isinstance(found, dict):
        raise ClusterError(f"the worker {worker} cannot run this trainer: {found}")
    for name, version in expected.items():
        if found.get(name) != version:
            raise ClusterError(
                f"the worker {worker} has {name} {found.get(name)}, expected {version} as here"
            )


@cache
def installed_versions() -> Versions:
    """What answers may depend on."""
    return {
        "leafcode": __version__,
        "Python": platform.python_version(),
        "numba": numba.__version__,
        "NumPy": np.__version__,
        "sources of leafcode": _source_digest(),
    }


def _source_digest() -> str:
    """Of all code of the engine and the trainer, so that a checkout is told from its neighbour."""
    trainer = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for folder in (trainer, trainer.parent / "service" / "engine"):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
