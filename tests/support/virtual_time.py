"""An event loop whose clock jumps: what takes an hour by the clock is tested in no time.

Where a real loop would wait for its next timer, this one moves its clock to that timer.
Time passes only when nothing is left to do, so that every moment can be stated exactly.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

__all__ = ["VirtualTimeLoop", "on_virtual_time", "settle"]

Arguments = ParamSpec("Arguments")
_Events = list[tuple[selectors.SelectorKey, int]]

# Whole nanoseconds, the resolution of a real loop's clock: sums of spans stay exact.
_NANOSECONDS = 1_000_000_000


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop that starts at time 0 and never waits."""

    def __init__(self) -> None:
        self._now = 0
        self._settling: list[asyncio.Future[None]] = []
        super().__init__(_Selector(self._on_nothing_left))

    def time(self) -> float:
        """Seconds since the loop was made, however long it really took."""
        return self._now / _NANOSECONDS

    async def settle(self) -> None:
        """Return when nothing is left to do at the present moment."""
        settled = self.create_future()
        self._settling.append(settled)
        await settled

    def _on_nothing_left(self, timeout: float | None) -> None:
        if self._settling:
            self._settling.pop().set_result(None)
        elif timeout is None:
            raise RuntimeError("everything waits for something that will never happen")
        else:
            self._now += round(timeout * _NANOSECONDS)


class _Selector(selectors.DefaultSelector):
    """Looks at the sockets without waiting for them."""

    def __init__(self, on_nothing_left: Callable[[float | None], None]) -> None:
        super().__init__()
        self._on_nothing_left = on_nothing_left

    def select(self, timeout: float | None = None) -> _Events:
        """What is there now; asks for the clock to be moved if a real loop would wait."""
        events = super().select(0)
        if not events and timeout != 0:
            self._on_nothing_left(timeout)
        return events


async def settle() -> None:
    """Return when nothing is left to do at the present moment of the virtual clock."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    await loop.settle()


def on_virtual_time(
    test: Callable[Arguments, Coroutine[Any, Any, None]],
) -> Callable[Arguments, None]:
    """Run an asynchronous test on a virtual clock of its own."""

    @functools.wraps(test)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*arguments, **options))

    return run
