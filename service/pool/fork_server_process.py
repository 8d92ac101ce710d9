"""A fork server, started ahead of the event loop that will ask it for workers.

It imports numba and loads the kernels, which takes as long as all that the service itself
imports: with two cores both happen at the same time.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from service.pool.fork_server import SERVICE_SIGNALS

__all__ = ["WORKER", "ForkServerProcess"]

WORKER = "service.pool.worker"
"""The module of the worker that answers with an engine."""


class ForkServerProcess:
    """The process, and our end of its socket; both are gone at the end of a `with` block.

    `log_config` is for `logging.config.dictConfig` in the process and its workers, which run
    the `run` of the module `worker`.
    """

    def __init__(
        self, threads: int, log_config: Mapping[str, Any] | None, worker: str = WORKER
    ) -> None:
        self.worker = worker
        self.control, theirs = socket.socketpair()
        # It inherits that they are blocked, until it can ignore them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SERVICE_SIGNALS)
        try:
            with theirs:
                self.process = subprocess.Popen(  # noqa: S603
                    [
                        *(sys.executable, "-m", "service.pool.fork_server"),
                        *(str(theirs.fileno()), json.dumps(log_config), worker),
                    ],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=_environment(threads),
                )
        except BaseException:
            self.control.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.control.close()
        self.process.kill()
        self.process.wait()


def _environment(threads: int) -> dict[str, str]:
    """Ours without keys, with the package in reach and every library kept to its threads."""
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **{name: value for name, value in os.environ.items() if name != "LEAFCODE_API_KEYS"},
        "PYTHONPATH": os.pathsep.join(paths),
        "NUMBA_NUM_THREADS": str(threads),
        # The engine's own threads share the cores; a fork must not find threads of BLAS.
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }
