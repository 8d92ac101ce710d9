"""Processes of this machine, one for each core, behind the interface of an executor.

A process that ends costs the call that it was at, and is replaced. `ProcessPoolExecutor` gives up
all calls of all processes when one of them ends, and leaves processes behind when it is killed.
"""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from trainer.errors import TrainingError
from trainer.parallel import n_threads

__all__ = ["LostProcessError", "PinnedProcesses", "pinned_processes"]

_CONTEXT = multiprocessing.get_context("spawn")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Call = Callable[[], object]


class LostProcessError(TrainingError):
    """A process ended in the middle of a call."""


class PinnedProcesses:
    """As many calls at a time as there are processes."""

    lost = (LostProcessError,)

    def __init__(self, processes: Sequence["_Process"]) -> None:
        self._processes = processes
        self._free: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        for process in processes:
            self._free.put(process)
        self._threads = ThreadPoolExecutor(len(processes), "process")

    @property
    def capacity(self) -> int:
        """How many calls are worth having under way."""
        return len(self._processes)

    def submit(
        self,
        function: Callable[Arguments, Result],
        /,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Future[Result]:
        """Have a process call a function; a process that ends raises `LostProcessError`."""
        return self._threads.submit(self._call, function, arguments, named)

    def _call(self, function: Callable[..., Any], arguments: Any, named: Any) -> Any:
        process = self._free.get()
        try:
            return process.call(function, arguments, named)
        finally:
            self._free.put(process)

    def close(self) -> None:
        """Kill all processes, whatever they are doing, and wait for them."""
        for process in self._processes:
            process.close()
        self._threads.shutdown()
        for process in self._processes:
            process.join()


@contextmanager
def pinned_processes(count: int | None, prepare: Call) -> Iterator[PinnedProcesses]:
    """Processes that begin with `prepare`, each on a core of its own if there is one for each.

    Under a scheduler's mask of more cores than processes, the system places them.
    """
    cores = _allowed_cores()
    count = count or n_threads()
    places = [{core} for core in cores] if count == len(cores) else [set[int]()] * count
    processes = [_Process(place, prepare) for place in places]
    running = PinnedProcesses(processes)
    try:
        yield running
    finally:
        running.close()


def _allowed_cores() -> list[int]:
    # Only Linux can say.
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


class _Process:
    """One process after the other, each with a connection to it; one thread at a time calls."""

    def __init__(self, cores: set[int], prepare: Call) -> None:
        self._cores, self._prepare = cores, prepare
        self._closing = threading.Lock()
        self._is_closed = False
        self._start()

    def call(self, function: Callable[..., Any], arguments: Any, named: Any) -> Any:
        """What a function returns there, or the error that it raises."""
        try:
            self._connection.send((function, arguments, named))
            is_error, found = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise LostProcessError(self._replace()) from error
        if is_error:
            raise found
        return found

    def close(self) -> None:
        """End the process for good."""
        with self._closing:
            self._is_closed = True
            self._process.kill()

    def join(self) -> None:
        """Wait until a closed process has ended."""
        self._process.join()
        self._connection.close()

    def _start(self) -> None:
        self._connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(
            target=_serve, args=(theirs, self._cores, self._prepare), daemon=True
        )
        # It inherits that Ctrl-C, which the whole group gets, is blocked: we end it ourselves.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def _replace(self) -> str:
        """Start another process in place of one that has ended; how that one ended."""
        self._process.join()
        code = self._process.exitcode or 0
        self._connection.close()
        with self._closing:
            if not self._is_closed:
                self._start()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def _serve(connection: Connection, cores: set[int], prepare: Call) -> None:
    """What a process does until its parent is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if cores:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, cores)
    with contextlib.suppress(Exception):  # the first call runs into it again, and tells
        prepare()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            function, arguments, named = connection.recv()
            try:
                answer = False, function(*arguments, **named)
            except Exception as error:  # noqa: BLE001  # raised again where it was called
                error.add_note(traceback.format_exc())
                answer = True, error
            connection.send(answer)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
