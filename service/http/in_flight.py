"""Which requests are under way: a version is dropped when none is left that may have chosen it.

A request chooses its version before it has read its body, long before the pool knows of
it. So requests are counted from their first byte to their last, whatever they ask for.
"""

import asyncio
import itertools

__all__ = ["RequestCount"]


class RequestCount:
    """Numbers of requests under way, in the order of their beginning."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._active: dict[int, None] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def begin(self) -> int:
        """The number of a new request."""
        number = next(self._numbers)
        self._active[number] = None
        return number

    def end(self, number: int) -> None:
        """A request is over, answered or not."""
        del self._active[number]
        if self._waiting:
            self._tell()

    async def wait_for_present(self) -> None:
        """Until every request that has begun by now is over; later ones do not matter."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((next(self._numbers), over))
        self._tell()
        await over

    def _tell(self) -> None:
        first = next(iter(self._active), None)
        for number, over in self._waiting:
            if (first is None or first > number) and not over.done():
                over.set_result(None)
        self._waiting = [item for item in self._waiting if not item[1].done()]
