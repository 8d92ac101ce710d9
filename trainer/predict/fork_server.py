"""A process that prepares itself once, and is forked for every process that is asked for.

An engine takes half a second of CPU time to load. Here that happens once, whatever the number of
processes, while others list the images; what was loaded is shared by all. Whoever asks has threads,
which must not fork, so that this is a process of its own. The fork server of the standard library
loads modules, but no engine, and nobody waits for it, so that the CPU time of all processes below
it would be counted nowhere.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import NoReturn

from trainer.errors import TrainingError

__all__ = ["ForkServer", "ForkServerLostError"]

_CONTEXT = multiprocessing.get_context("spawn")

# A request: what is asked for, and the core of a process to start or the id of one that ended. The
# answer is one number. There is one request at a time.
_REQUEST, _ANSWER = struct.Struct("qq"), struct.Struct("q")
_START, _WAIT = range(2)
_NO_CORE = -1

Prepare = Callable[[], object]
Work = Callable[[Connection], None]


class ForkServerLostError(TrainingError):
    """The process that others are forked from ended; another one was started."""


class ForkServer:
    """Starts processes that begin where `prepare` left off, each with a connection, and do `work`.

    Both functions are pickled. An error of `prepare` is left for `work` to run into. All processes
    end when this one is closed or gone.
    """

    def __init__(self, prepare: Prepare, work: Work) -> None:
        self._functions = prepare, work
        self._asking = threading.Lock()
        self._is_closed = False
        self._launch()

    def start(self, core: int | None) -> tuple[int, Connection]:
        """The id of a new process, on a core if one is given, and the connection to it."""
        ours, theirs = _CONTEXT.Pipe()
        with theirs:
            pid = self._ask(_START, _NO_CORE if core is None else core, [theirs.fileno()])
        if pid < 0:
            raise TrainingError(f"no process can be started: {os.strerror(-pid)}")
        return pid, ours

    def exit_code(self, pid: int) -> int:
        """How a process that has closed its connection ended; below zero, by which signal."""
        return self._ask(_WAIT, pid)

    def close(self) -> None:
        """End all processes, whatever they are doing, and wait for them."""
        self._is_closed = True
        self._end()  # so that nobody waits any more for an answer
        with self._asking:
            self._end()
            self._process.join()
            self._control.close()

    def _launch(self) -> None:
        self._has_answered = False
        self._control, theirs = socket.socketpair()
        arguments = (theirs, *self._functions)
        self._process = _CONTEXT.Process(target=_serve, args=arguments, daemon=True)
        # It inherits that Ctrl-C, which the whole group gets, is blocked: we end it ourselves.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def _ask(self, what: int, number: int, descriptors: Sequence[int] = ()) -> int:
        with self._asking:
            answer = b""
            with contextlib.suppress(OSError):
                socket.send_fds(self._control, [_REQUEST.pack(what, number)], descriptors)
                answer = self._control.recv(_ANSWER.size)
            if not answer:
                self._replace()
                raise ForkServerLostError("the process that others are forked from ended")
            self._has_answered = True
            found: int = _ANSWER.unpack(answer)[0]
            return found

    def _replace(self) -> None:
        if not self._is_closed:
            self._process.join()
            self._control.close()
            self._launch()

    def _end(self) -> None:
        """It ends when nobody can ask any more, unless it is still preparing itself."""
        if not self._has_answered:
            self._process.kill()
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)


def _serve(control: socket.socket, prepare: Prepare, work: Work) -> None:
    """What the process does until whoever started it is gone."""
    gc.disable()  # nothing of what is loaded is garbage; looking for some takes 30 ms
    with contextlib.suppress(Exception):
        prepare()
    gc.freeze()  # the collector must not touch, and so copy, its pages
    gc.enable()
    _Forks(control, work).serve()
    os._exit(0)  # to take down all that was loaded takes 50 ms, for which others wait


class _Forks:
    """The processes that were forked; they end with this one."""

    def __init__(self, control: socket.socket, work: Work) -> None:
        self._control, self._work = control, work
        self._running: set[int] = set()
        # Of this pipe only we have the end for writing, so that reading ends when we are gone.
        self._gone, self._here = os.pipe()

    def serve(self) -> None:
        while True:
            request, descriptors, _, _ = socket.recv_fds(self._control, _REQUEST.size, 1)
            if not request:
                break
            what, number = _REQUEST.unpack(request)
            found = self._start(number, descriptors[0]) if what == _START else self._wait(number)
            with contextlib.suppress(ConnectionError):  # the next look at the socket shows it
                self._control.sendall(_ANSWER.pack(found))
        self._end()

    def _start(self, core: int, descriptor: int) -> int:
        with Connection(descriptor) as connection:
            try:
                pid = os.fork()
            except OSError as error:
                return -(error.errno or 1)
            if pid == 0:
                self._become(core, connection)
        self._running.add(pid)
        return pid

    def _become(self, core: int, connection: Connection) -> NoReturn:
        """What follows in this process is the fork server's."""
        code = 1
        try:
            self._control.close()
            os.close(self._here)
            threading.Thread(target=_end_with, args=(self._gone,), daemon=True).start()
            if core != _NO_CORE:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(0, {core})
            self._work(connection)
            code = 0
        except BaseException:  # noqa: BLE001  # as of any process
            traceback.print_exc()
        finally:
            os._exit(code)

    def _wait(self, pid: int) -> int:
        if pid not in self._running:
            return 1  # of a fork server before this one, with which it ended
        self._running.discard(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _end(self) -> None:
        # None of them was waited for yet, so that no number belongs to another process.
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
        for pid in self._running:
            os.waitpid(pid, 0)


def _end_with(pipe: int) -> None:
    os.read(pipe, 1)
    os._exit(1)
