"""`python -m service.pool.fork_server FD LEVEL FORMAT`: the process that workers are forked from.

It has imported the engine and run every kernel, so that a forked worker starts in
milliseconds and shares the machine code. It takes lines of JSON on one socket, a
worker's own socket travelling beside its line, and ends, workers and all, when the
service is gone. The standard library's fork server would pickle, import the service's
main module into every worker, and keep a resource tracker beside it.
"""

import gc
import json
import logging
import os
import selectors
import signal
import socket
import sys
from collections import deque
from typing import Any, cast

from service.observability.logs import LogFormat, LogLevel, start_logging
from service.pool import worker
from service.pool.warmup import run_every_kernel
from service.pool.worker import Plan

__all__ = ["Nursery", "main"]

logger = logging.getLogger(__name__)

_LINE_BYTES = 65_536


def main(descriptor: int, level: LogLevel, format_: LogFormat) -> None:
    """Get ready, say so, and fork workers until the service is gone."""
    # Ctrl-C and a stopping supervisor signal the whole group; only the service obeys.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    start_logging(level, format_)
    run_every_kernel()
    # What is there now stays: the collector must not touch, and so copy, its pages.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as control:
        Nursery(control).serve()


class Nursery:
    """Forks workers on request, reaps them, and tells how they ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()
        self._connections: deque[int] = deque()
        self._buffer = b""
        self._wake, self._alarm = socket.socketpair()

    def serve(self) -> None:
        """Take requests until the service closes its side."""
        self._alarm.settimeout(0)
        self._wake.settimeout(0)
        signal.set_wakeup_fd(self._alarm.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._tell(ready=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while self._turn([key.fileobj for key, _ in selector.select()]):
                pass
        self._end_children()

    def _turn(self, sources: list[Any]) -> bool:
        """Handle what is there; whether to go on."""
        if self._wake in sources:
            self._wake.recv(_LINE_BYTES)
            self._reap()
        if self._control not in sources:
            return True
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _LINE_BYTES, 1)
        except OSError:
            return False
        self._connections.extend(descriptors)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return bool(data)

    def _obey(self, request: dict[str, Any]) -> None:
        if "kill" in request:
            # Not reaped yet, so that the number cannot belong to another process.
            if request["kill"] in self._children:
                os.kill(request["kill"], signal.SIGKILL)
            return
        connection = socket.socket(fileno=self._connections.popleft())
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(refused=str(error))
        else:
            if pid == 0:
                self._become_worker(connection, Plan.from_json(request["start"]))
            self._children.add(pid)
            self._tell(started=pid)
        finally:
            connection.close()

    def _become_worker(self, connection: socket.socket, plan: Plan) -> None:
        """Never returns: what follows in this process is the fork server's."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inherited in (self._control, self._wake, self._alarm):
                inherited.close()
            worker.run(connection, plan)
            code = 0
        except BaseException:
            logger.exception("worker %d failed", plan.number)
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._children.discard(pid)
            self._tell(ended=pid, code=os.waitstatus_to_exitcode(status))

    def _end_children(self) -> None:
        """Workers end by themselves when their socket closes, except one that hangs."""
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)

    def _tell(self, **news: int | str) -> None:
        try:
            self._control.sendall(json.dumps(news).encode() + b"\n")
        except OSError:
            return  # the service is gone, which the next turn sees


if __name__ == "__main__":
    main(int(sys.argv[1]), cast("LogLevel", sys.argv[2]), cast("LogFormat", sys.argv[3]))
