"""Several cores for one image: threads that help whoever works on it.

Kernels run without the GIL and share their work by strips (`strips.py`). What a thread computes
does not depend on who took which rows, so that any number of threads gives the same answer, bit
for bit. Whoever asks for help goes on by itself if none comes, and knows from the strips when all
is done: to wait for a thread, and to be woken, takes longer than the last rows.
"""

import logging
import threading
import weakref
from collections.abc import Callable
from functools import cached_property
from queue import SimpleQueue

__all__ = ["ONE_THREAD", "Threads"]

logger = logging.getLogger(__name__)

Work = Callable[[], object]


class Threads:
    """A number of threads, the caller's among them; the others start when first needed.

    They end with this object.
    """

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise ValueError(f"{count} threads, expected at least one thread")
        self.count = count

    def help(self, work: Work, parts: int) -> None:
        """Let the other threads call `work` soon, if there are parts for them besides the caller's.

        An error of theirs is logged: what they did not take, the caller does.
        """
        for _ in range(min(self.count, parts) - 1):
            self._queue.put(work)

    @cached_property
    def _queue(self) -> "SimpleQueue[Work | None]":
        """What the other threads take their calls from."""
        queue: SimpleQueue[Work | None] = SimpleQueue()
        for number in range(self.count - 1):
            threading.Thread(
                target=_serve, args=(queue,), name=f"engine_{number}", daemon=True
            ).start()
            weakref.finalize(self, queue.put, None)
        return queue


def _serve(queue: "SimpleQueue[Work | None]") -> None:
    """Make calls until there is None."""
    while (work := queue.get()) is not None:
        try:
            work()
        except Exception:
            logger.exception("a thread could not help with an image")
        # What it refers to is not to live until the next one comes.
        del work


ONE_THREAD = Threads(1)
