"""A worker that waits instead of classifying; how long, the body of its request says.

Only the operation is another one: link, frames and loop are those of every worker.
"""

import socket
import time

from service.pool import worker
from service.pool.frames import Frame, Kind, WorkTimes
from service.pool.worker_plan import WorkerPlan, WorkLimits

__all__ = ["WaitingOperations", "run"]

# As long as the answer of a model with five labels.
_ANSWER = b'{"known":true,"predictions":[%b]}' % b",".join(
    [b'{"label":"something","probability":0.1234567890123456}'] * 5
)
_STAGES = ("decode", "sift", "coding", "pooling", "classifier")


def run(connection: socket.socket, plan: WorkerPlan) -> None:
    """The life of a worker that waits."""
    worker.run(connection, plan, WaitingOperations)


class WaitingOperations:
    """Answers everything at once, but classification after the time in the body."""

    def __init__(self, threads: int, limits: WorkLimits) -> None:
        """What others need is not needed here."""

    def answer(self, frame: Frame) -> Frame:
        """The frame to send back."""
        if frame.kind is not Kind.CLASSIFY:
            return Frame(Kind.DONE, frame.job, {})
        seconds = float(bytes(frame.body[:16]).split()[0])
        time.sleep(seconds)
        share = seconds / len(_STAGES)
        times = WorkTimes(seconds, dict.fromkeys(_STAGES, share))
        return Frame(Kind.DONE, frame.job, {}, _ANSWER, times)
