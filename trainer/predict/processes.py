"""Processes of this machine, one for each core, behind the interface of an executor.

A process that ends costs the call that it was at, and is replaced. `ProcessPoolExecutor` gives up
all calls of all processes when one of them ends, and leaves processes behind when it is killed.
"""

import contextlib
import os
import queue
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, Protocol, TypeVar

from trainer.errors import TrainingError
from trainer.parallel import n_threads
from trainer.predict.fork_server import ForkServer, ForkServerLostError

__all__ = ["LostProcessError", "PinnedProcesses", "Unfinished", "pinned_processes"]

Arguments = ParamSpec("Arguments")
Finished_co = TypeVar("Finished_co", covariant=True)
Call = Callable[[], object]


class LostProcessError(TrainingError):
    """A process ended in the middle of a call."""


class Unfinished(Protocol[Finished_co]):
    """What a call leaves to be finished, which takes no core but waits, as for a disk."""

    def finish(self) -> Finished_co:
        """Wait; what the call was for."""


class PinnedProcesses:
    """As many calls at a time as there are processes, while others are being finished.

    On a disk that others write to, too, a file of a part takes up to a tenth of a second.
    """

    lost = (LostProcessError,)

    def __init__(self, server: ForkServer, cores: Sequence[int | None]) -> None:
        self._server = server
        self._processes = [_Process(server, core) for core in cores]
        self._free: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        for process in self._processes:
            self._free.put(process)
        self._threads = ThreadPoolExecutor(self.capacity, "process")

    @property
    def capacity(self) -> int:
        """How many calls are worth having under way: for each process, one to go on with, too."""
        return 2 * len(self._processes)

    def submit(
        self,
        function: Callable[Arguments, Unfinished[Finished_co]],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Future[Finished_co]:
        """Have a process call a function, and finish here what it returns.

        A process that ends raises `LostProcessError`.
        """
        return self._threads.submit(self._call, function, arguments, named)

    def _call(self, function: Callable[..., Any], arguments: Any, named: Any) -> Any:
        process = self._free.get()
        try:
            found = process.call(function, arguments, named)
        finally:
            self._free.put(process)
        return found.finish()

    def close(self) -> None:
        """Kill all processes, whatever they are doing, and wait for them."""
        self._server.close()
        self._threads.shutdown()
        for process in self._processes:
            process.disconnect()


@contextmanager
def pinned_processes(count: int | None, prepare: Call) -> Iterator[PinnedProcesses]:
    """Processes that begin with `prepare`, each on a core of its own if there is one for each.

    It is called once, at once, and the processes are forked when they are first needed. Under a
    scheduler's mask of more cores than processes, the system places them.
    """
    cores = _allowed_cores()
    count = count or n_threads()
    places = cores if count == len(cores) else [None] * count
    running = PinnedProcesses(ForkServer(prepare, _serve), places)
    try:
        yield running
    finally:
        running.close()


def _allowed_cores() -> Sequence[int]:
    # Only Linux can say.
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


class _Process:
    """One process after the other, each with a connection to it; one thread at a time calls."""

    def __init__(self, server: ForkServer, core: int | None) -> None:
        self._server, self._core = server, core
        self._connection: Connection | None = None

    def call(self, function: Callable[..., Any], arguments: Any, named: Any) -> Any:
        """What a function returns there, or the error that it raises."""
        try:
            is_error, found = self._answer((function, arguments, named))
        except ForkServerLostError as error:
            self.disconnect()
            raise LostProcessError("the process that it was forked from") from error
        if is_error:
            raise found
        return found

    def _answer(self, call: tuple[Callable[..., Any], Any, Any]) -> tuple[bool, Any]:
        if self._connection is None:
            self._pid, self._connection = self._server.start(self._core)
        try:
            self._connection.send(call)
            answer: tuple[bool, Any] = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            self.disconnect()
            raise LostProcessError(self._how_it_ended()) from error
        return answer

    def _how_it_ended(self) -> str:
        code = self._server.exit_code(self._pid)
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def disconnect(self) -> None:
        """Have another process started for the next call."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _serve(connection: Connection) -> None:
    """What a process does until its parent is gone."""
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            function, arguments, named = connection.recv()
            try:
                answer = False, function(*arguments, **named)
            except Exception as error:  # noqa: BLE001  # raised again where it was called
                error.add_note(traceback.format_exc())
                answer = True, error
            connection.send(answer)
