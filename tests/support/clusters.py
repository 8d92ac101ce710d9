"""A Dask scheduler and its workers, each a process of its own, as operators start them."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.processes import environment

__all__ = ["Cluster", "cluster"]

# However busy the machine is.
_PATIENT = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "300s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "300s",
}


@dataclass(frozen=True)
class Cluster:
    """The address of the scheduler, and the workers that were started."""

    address: str
    folder: Path
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def start_worker(self) -> subprocess.Popen[str]:
        """A worker with one thread, on a port that the system chose."""
        command = ["worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        with (self.folder / "workers.log").open("a") as log:
            worker = _dask([*command, "--memory-limit", "0"], self.folder, log)
        self.workers.append(worker)
        return worker

    def kill_worker(self, number: int) -> None:
        """End a worker as a power cut does."""
        self.workers[number].send_signal(signal.SIGKILL)
        self.workers[number].wait()


@contextmanager
def cluster(folder: Path, n_workers: int) -> Iterator[Cluster]:
    """A scheduler with workers, gone at the end."""
    with ExitStack() as stack:
        command = ["scheduler", "--host", "127.0.0.1", "--port", "0"]
        command += ["--dashboard-address", "127.0.0.1:0"]
        scheduler = stack.enter_context(_ended(_dask(command, folder, subprocess.PIPE)))
        assert scheduler.stderr is not None
        lines = (line for line in scheduler.stderr if "Scheduler at:" in line)
        address = next(lines).rpartition("Scheduler at:")[2].strip()
        running = Cluster(address, folder)
        for _ in range(n_workers):
            stack.enter_context(_ended(running.start_worker()))
        yield running
        for worker in running.workers[n_workers:]:
            stack.enter_context(_ended(worker))


def _dask(arguments: list[str], folder: Path, log: IO[str] | int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dask", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment(**_PATIENT), stderr=log, text=True)


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
