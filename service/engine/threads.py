"""Several cores for one image: threads that do the same work together.

Kernels run without the GIL and share their work by strips (`strips.py`). What a thread computes
does not depend on who took which strip, so that any number of threads gives the same answer, bit
for bit.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from queue import SimpleQueue

__all__ = ["ONE_THREAD", "Running", "Threads"]

Work = Callable[[], None]


class Threads:
    """A number of threads, the caller's among them; the others start when first needed.

    They end with this object. A `ThreadPoolExecutor` takes 80 µs longer to hand over a call and
    to tell that it is done, 2 % of the time of a photograph on two cores.
    """

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise ValueError(f"{count} threads, expected at least one thread")
        self.count = count

    def begin(self, work: Work, parts: int) -> "Running":
        """Let the other threads call `work`, but no more than have one of `parts` to do each."""
        calls = [_Call(work) for _ in range(min(self.count, parts) - 1)]
        for call in calls:
            self._queue.put(call)
        return Running(work, calls)

    def run(self, work: Work, parts: int) -> None:
        """Let all threads call `work`, the caller's among them, and wait for all."""
        self.begin(work, parts).finish()

    @cached_property
    def _queue(self) -> "SimpleQueue[_Call | None]":
        """What the other threads take their calls from."""
        queue: SimpleQueue[_Call | None] = SimpleQueue()
        for number in range(self.count - 1):
            threading.Thread(
                target=_serve, args=(queue,), name=f"engine_{number}", daemon=True
            ).start()
            weakref.finalize(self, queue.put, None)
        return queue


class Running:
    """Work that other threads have begun."""

    def __init__(self, work: Work, calls: "Sequence[_Call]") -> None:
        self._work, self._calls = work, calls

    def finish(self) -> None:
        """Join in, and wait for all; an error of any of them is raised when all have ended."""
        try:
            self._work()
        finally:
            self.wait()
        for call in self._calls:
            if call.error is not None:
                raise call.error

    def wait(self) -> None:
        """Return when the others have ended, however they did."""
        for call in self._calls:
            call.wait()


class _Call:
    """A call that another thread makes."""

    def __init__(self, work: Work) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._under_way = threading.Lock()
        self._under_way.acquire()

    def run(self) -> None:
        """Make the call, and keep its error."""
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  # raised where the call is waited for
            self.error = error
        finally:
            self._under_way.release()

    def wait(self) -> None:
        """Return when the call has been made."""
        with self._under_way:
            pass


def _serve(queue: "SimpleQueue[_Call | None]") -> None:
    """Make calls until there is None."""
    while (call := queue.get()) is not None:
        call.run()
        # What it refers to is not to live until the next one comes.
        del call


ONE_THREAD = Threads(1)
