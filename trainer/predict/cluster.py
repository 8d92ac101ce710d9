"""Workers of a Dask cluster behind the interface that processes of this machine have.

They read the images and the bundle, and write the table, under the same paths as here.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trainer.cluster.connection import connected
from trainer.predict.processes import Unfinished

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClusterWorkers", "cluster_workers"]

# For each thread of a worker: one to work on, and one to go on with.
_CALLS_A_THREAD = 2

Arguments = ParamSpec("Arguments")
Finished = TypeVar("Finished")


class ClusterWorkers:
    """Before Dask gives up a call whose worker ended, it has other workers try it."""

    def __init__(self, client: "Client") -> None:
        from distributed import KilledWorker  # noqa: PLC0415

        self._client = client
        # The same call again is another call: the first one may have ended a worker.
        self._executor: Any = client.get_executor(pure=False)
        self.lost: tuple[type[Exception], ...] = (KilledWorker,)

    @property
    def capacity(self) -> int:
        """How many calls are worth having under way, by the workers that there are now."""
        n_threads: int = sum(self._client.nthreads().values())
        return max(1, _CALLS_A_THREAD * n_threads)

    def submit(
        self,
        function: Callable[Arguments, Unfinished[Finished]],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Future[Finished]:
        """Have a worker call a function and finish what it returns."""
        future: Future[Finished] = self._executor.submit(_finished, function, *arguments, **named)
        return future

    def close(self) -> None:
        """Give up all calls that are not done."""
        self._executor.shutdown(wait=False)


def _finished(
    function: Callable[Arguments, Unfinished[Finished]],
    /,
    *arguments: Arguments.args,
    **named: Arguments.kwargs,
) -> Finished:
    return function(*arguments, **named).finish()


@contextmanager
def cluster_workers(address: str) -> Iterator[ClusterWorkers]:
    """The workers of the scheduler at an address, or of a cluster on this machine."""
    with connected(address) as client:
        workers = ClusterWorkers(client)
        try:
            yield workers
        finally:
            workers.close()
