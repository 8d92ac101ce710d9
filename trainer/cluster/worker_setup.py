"""What every worker of a cluster is told once, before its first task."""

from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin

from trainer.cluster.connection import installed_versions, require_same

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["WorkerSetup"]


class WorkerSetup(WorkerPlugin):  # type: ignore[misc]
    """Tasks run side by side, so that each has one thread, BLAS's among them.

    A worker that comes later with other versions than the driver's is not taken.
    """

    name = "leafcode"
    idempotent = True

    def __init__(self, versions: dict[str, str]) -> None:
        self._versions = versions
        self._limits: Any = None

    def setup(self, worker: "Worker") -> None:
        """Limit the threads of libraries, as long as the worker lives."""
        import scipy.linalg  # noqa: F401, PLC0415  # its BLAS is to be loaded
        from threadpoolctl import threadpool_limits  # noqa: PLC0415

        require_same(worker.address, installed_versions(), self._versions)
        self._limits = threadpool_limits(1, "blas")
