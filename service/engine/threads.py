"""Several cores for one image: a stage's rows or descriptors, split over threads.

Kernels run without the GIL. What a thread computes does not depend on how the work was
split, so that any number of threads gives the same answer, bit for bit.
"""

import threading
import weakref
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from queue import SimpleQueue

__all__ = ["ONE_THREAD", "Threads"]

Work = Callable[[int, int], None]

# How large the pieces of the caller and of others are beside each other: others begin later, and
# if they end last, to hear of it takes time. With equal pieces a photograph took 3 % longer on two
# cores, with 17 to 16 or 19 to 16 as long as with this.
_CALLER, _OTHER = 9, 8


class Threads:
    """A number of threads, the caller's among them; the others start when first needed.

    They end with this object. A `ThreadPoolExecutor` takes 80 µs longer to hand over a piece and
    to tell that it is done, 2 % of the time of a photograph on two cores.
    """

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise ValueError(f"{count} threads, expected at least one thread")
        self.count = count

    def split(self, work: Work, size: int) -> None:
        """Call `work(begin, end)` for pieces that make up 0 to `size`, and wait for all.

        One piece each: with two or four, handing them out took longer than waiting for the
        slower thread. An error of any of them is raised when all have ended.
        """
        pieces = min(self.count, max(size, 1))
        ends = [_OTHER * piece + _CALLER - _OTHER for piece in range(1, pieces + 1)]
        bounds = [0, *(size * end // ends[-1] for end in ends)]
        others = [_Piece(work, begin, end) for begin, end in pairwise(bounds[1:])]
        for piece in others:
            self._queue.put(piece)
        try:
            # The first piece here: to wake one thread takes long enough.
            work(bounds[0], bounds[1])
        finally:
            for piece in others:
                piece.wait()
        for piece in others:
            if piece.error is not None:
                raise piece.error

    @cached_property
    def _queue(self) -> "SimpleQueue[_Piece | None]":
        """What the other threads take their pieces from."""
        queue: SimpleQueue[_Piece | None] = SimpleQueue()
        for number in range(self.count - 1):
            threading.Thread(
                target=_serve, args=(queue,), name=f"engine_{number}", daemon=True
            ).start()
            weakref.finalize(self, queue.put, None)
        return queue


class _Piece:
    """A call that another thread makes."""

    def __init__(self, work: Work, begin: int, end: int) -> None:
        self.error: BaseException | None = None
        self._work, self._begin, self._end = work, begin, end
        self._under_way = threading.Lock()
        self._under_way.acquire()

    def run(self) -> None:
        """Make the call, and keep its error."""
        try:
            self._work(self._begin, self._end)
        except BaseException as error:  # noqa: BLE001  # raised where the call is waited for
            self.error = error
        finally:
            self._under_way.release()

    def wait(self) -> None:
        """Return when the call has been made."""
        with self._under_way:
            pass


def _serve(queue: "SimpleQueue[_Piece | None]") -> None:
    """Make calls until there is None."""
    while (piece := queue.get()) is not None:
        piece.run()
        # What it refers to is not to live until the next one comes.
        del piece


ONE_THREAD = Threads(1)
