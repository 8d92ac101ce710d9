"""The loop of a worker process: pin if asked to, then answer frames until the service is gone."""

import contextlib
import logging
import os
import signal
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from PIL import Image

from service.pool import frames
from service.pool.frames import Frame
from service.pool.operations import Operations
from service.pool.worker_plan import WorkerPlan, WorkLimits

__all__ = ["Answering", "run"]

logger = logging.getLogger(__name__)

# What fits is read, or sent, by one system call.
_BUFFER_BYTES = 131_072
_NICENESS = 10
# Of 1000: as if it had half of the machine's memory beside its own. Raising it needs no right.
_OOM_SCORE = 500


class Answering(Protocol):
    """What a worker can do."""

    def answer(self, frame: Frame) -> Frame:
        """The frame to send back."""


def run(
    connection: socket.socket,
    plan: WorkerPlan,
    operations_of: Callable[[int, WorkLimits], Answering] = Operations,
) -> None:
    """The life of a worker; it ends when the other side of `connection` closes."""
    # Ctrl-C and a stopping supervisor signal the whole group; only the service obeys.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Our own limit rejects such an image right after Pillow has warned about it.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    if plan.cores:
        _pin(plan.cores)
    # Behind the front end, which needs little and is waited for: on cores that are all busy
    # it would otherwise get its turn only when a worker's time slice ends.
    os.nice(_NICENESS)
    _come_before_the_front_end()
    operations = operations_of(plan.threads, plan.limits)
    with connection, connection.makefile("rb", _BUFFER_BYTES) as stream:
        try:
            while (frame := frames.read_frame(stream)) is not None:
                _send(connection, operations.answer(frame))
        except OSError:
            logger.debug("worker %d: the service closed the connection", plan.number)


def _pin(cores: tuple[int, ...]) -> None:
    try:
        os.sched_setaffinity(0, cores)
    except (OSError, AttributeError) as error:
        # Some sandboxes forbid it; the worker is then only slower.
        logger.warning("cannot pin a worker to cores %s: %s", cores, error)


def _come_before_the_front_end() -> None:
    """Where memory is short, the system ends a worker, which is replaced, and not the service."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(f"{_OOM_SCORE}\n")


def _send(connection: socket.socket, frame: Frame) -> None:
    head = frame.head()
    if len(frame.body) <= _BUFFER_BYTES:
        connection.sendall(head + frame.body)
    else:
        connection.sendall(head)
        connection.sendall(frame.body)
