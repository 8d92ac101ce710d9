"""`python -m service.pool.fork_server FD LOG_CONFIG WORKER`: what workers are forked from.

It has imported the engine and run every kernel, so that a forked worker starts in
milliseconds and shares the machine code; WORKER is the module whose `run` it runs. It takes lines
of JSON on one socket, a worker's own socket travelling beside its line, and ends, workers and all,
when the service is gone. The standard library's fork server would pickle, import the service's
main module into every worker, and keep a resource tracker beside it.
"""

import gc
import importlib
import json
import logging
import logging.config
import os
import selectors
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from service.pool.worker_plan import WorkerPlan

__all__ = ["SERVICE_SIGNALS", "ForkServer", "main"]

logger = logging.getLogger(__name__)

_LINE_BYTES = 65_536

# Ctrl-C and a stopping supervisor signal the whole group; only the service obeys.
SERVICE_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(descriptor: int, log_config: dict[str, Any] | None, worker: str) -> None:
    """Prepare, report that it is ready, and fork workers until the service is gone."""
    for number in SERVICE_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SERVICE_SIGNALS)  # blocked by who started it
    if log_config is not None:
        logging.config.dictConfig(log_config)
    gc.disable()
    # numba would look for the BLAS of SciPy, which no kernel uses: .2 s and 16 MB.
    sys.modules["scipy"] = None  # type: ignore[assignment]
    run_worker = importlib.import_module(worker).run
    from service.pool.warmup import warm  # noqa: PLC0415

    warm()
    # What is there now stays: the collector must not touch, and so copy, its pages.
    gc.collect()
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=descriptor) as control:
        ForkServer(control, run_worker).serve()


class ForkServer:
    """Forks workers on request, reaps them, and reports how they ended.

    `run_worker` is all that a worker does, with its socket and its plan.
    """

    def __init__(
        self, control: socket.socket, run_worker: Callable[[socket.socket, WorkerPlan], None]
    ) -> None:
        self._control = control
        self._run_worker = run_worker
        self._children: set[int] = set()
        self._connections: deque[int] = deque()
        self._buffer = b""
        self._child_ended, self._wakeup = socket.socketpair()

    def serve(self) -> None:
        """Take requests until the service closes its side."""
        self._wakeup.settimeout(0)
        self._child_ended.settimeout(0)
        signal.set_wakeup_fd(self._wakeup.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._report(ready=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._child_ended, selectors.EVENT_READ)
            while self._handle([key.fileobj for key, _ in selector.select()]):
                pass
        self._end_children()

    def _handle(self, sources: list[Any]) -> bool:
        """Handle the sources that are readable; False once the service is gone."""
        if self._child_ended in sources:
            self._child_ended.recv(_LINE_BYTES)
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
        if "ping" in request:
            self._report(pong=True)
            return
        if "kill" in request:
            # Not reaped yet, so that the number cannot belong to another process.
            if request["kill"] in self._children:
                os.kill(request["kill"], signal.SIGKILL)
            return
        connection = socket.socket(fileno=self._connections.popleft())
        try:
            pid = os.fork()
        except OSError as error:
            self._report(failed=str(error))
        else:
            if pid == 0:
                self._become_worker(connection, WorkerPlan.from_json(request["start"]))
            self._children.add(pid)
            self._report(started=pid)
        finally:
            connection.close()

    def _become_worker(self, connection: socket.socket, plan: WorkerPlan) -> None:
        """Never returns: what follows in this process is the fork server's."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inherited in (self._control, self._child_ended, self._wakeup):
                inherited.close()
            self._run_worker(connection, plan)
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
            self._report(ended=pid, code=os.waitstatus_to_exitcode(status))

    def _end_children(self) -> None:
        """Workers end by themselves when their socket closes, except one that hangs."""
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)

    def _report(self, **news: int | str) -> None:
        try:
            self._control.sendall(json.dumps(news).encode() + b"\n")
        except OSError:
            return  # the service is gone, which the next look at the socket shows


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
