"""A bundle is proved in a process that serves nobody: what it breaks can be spared.

A file that is cut short while it is mapped ends a process, and a huge one may be more than
the memory holds. The trial reads, checks and replays all that a worker would.
"""

import asyncio
import contextlib

from service.engine import BundleError
from service.errors import WorkerLostError
from service.pool import frames
from service.pool.fork_client import Starter
from service.pool.frames import Fields, Frame, Kind
from service.pool.worker import Plan
from service.pool.worker_link import Link, start_worker
from service.pool.worker_slot import LOAD_SECONDS

__all__ = ["prove"]

_END_SECONDS = 2.0


async def prove(starter: Starter, plan: Plan, fields: Fields) -> None:
    """Load a bundle by the fields of a LOAD frame and forget it.

    Raises `BundleError` if it is not sound, `WorkerLostError` if the process did not survive.
    """
    link = Link(_ignore)
    pid = None
    try:
        pid = await start_worker(starter, plan, link)
        frame = await link.call(Kind.LOAD, fields, LOAD_SECONDS)
    except WorkerLostError as error:
        raise WorkerLostError(f"a process that tried to load it was lost: {error}") from error
    finally:
        link.abort()
        if pid is not None:
            await _end(starter, pid)
    if frame.kind is not Kind.DONE:
        failure = frames.failure(frame)
        raise failure if isinstance(failure, BundleError) else BundleError(str(failure))


async def _end(starter: Starter, pid: int) -> None:
    starter.kill(pid)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(starter.ended(pid), _END_SECONDS)


def _ignore(_: Frame) -> None:
    """A trial has no jobs that could be answered."""
