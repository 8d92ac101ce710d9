"""Work spread over forked processes, results in order.

A process each core, as the service has it: each has an interpreter lock of its own. On two cores
threads took the same CPU seconds an image; more cores, where they may wait for the lock, were not
measured. Processes are forked when everything is loaded, so that they share it, and get a few
items at a time, so that a slow item or a busy core keeps nobody waiting.
"""

import contextlib
import gc
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

from service.pool.cores import stay_on

__all__ = ["map_in_processes"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Cores = tuple[int, ...]

# One message for some items. On a busy machine, one item at a time took no more CPU.
_MAX_BATCH = 8
# One to work on, and one to go on with.
_BATCHES_EACH = 2
# Results that wait for an earlier one; they are small.
_MAX_AHEAD = 10_000

_CONTEXT = multiprocessing.get_context("fork")


def map_in_processes(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    placement: Sequence[Cores],
    lost: Callable[[int], Result],
) -> Generator[Result, None, None]:
    """`function` of each item, in order, by one process for each entry of `placement`.

    An item that ends its process gets `lost` of the exit code, and the others go on. No process
    is left behind when the generator is closed, or when this process ends in any way.
    """
    team = _Team(function, items, placement, lost)
    try:
        yield from team.results()
    finally:
        team.end()


class _Worker:
    """A process, the connection to it, and the batches that it was given, oldest first."""

    def __init__(
        self, run: Callable[[Connection], None], cores: Cores, others: Sequence[Connection]
    ) -> None:
        self.cores = cores
        self.batches: deque[range] = deque()
        self.connection, theirs = _CONTEXT.Pipe()

        def begin() -> None:
            # A process holds on to what was open when it was forked: our end of its connection
            # and of those to others, which would not learn that this process is gone.
            for ours in (self.connection, *others):
                ours.close()
            stay_on(cores)
            run(theirs)

        self.process = _CONTEXT.Process(target=begin, daemon=True)
        # It inherits that Ctrl-C, which the whole group gets, is blocked: we end it ourselves.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def give(self, batch: range) -> None:
        """Send a batch; that its process is gone, the next receiving tells."""
        self.batches.append(batch)
        with contextlib.suppress(OSError):
            self.connection.send(batch)

    def end(self) -> int:
        """Kill it and wait; its exit code, minus the signal."""
        self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        self.process.close()
        self.connection.close()
        return code


class _Team(Generic[Item, Result]):
    """All processes, what they still have to do, and what waits for its turn."""

    def __init__(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        placement: Sequence[Cores],
        lost: Callable[[int], Result],
    ) -> None:
        self._function = function
        self._items = items
        self._lost = lost
        self._again: deque[range] = deque()
        self._begun = 0
        self._results: dict[int, Result] = {}
        self._workers: list[_Worker] = []
        try:
            for cores in placement:
                self._workers.append(self._start(cores))
        except BaseException:
            self.end()
            raise

    def results(self) -> Iterator[Result]:
        """The result of each item, in order."""
        told = 0
        while told < len(self._items):
            self._give_batches(told)
            busy = {worker.connection: worker for worker in self._workers if worker.batches}
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)  # noqa: S101  # of those we gave it
                self._receive(busy[connection])
            while told in self._results:
                yield self._results.pop(told)
                told += 1

    def end(self) -> None:
        """Kill all processes and wait for them."""
        while self._workers:
            self._workers.pop().end()

    def _start(self, cores: Cores) -> _Worker:
        return _Worker(self._work, cores, [worker.connection for worker in self._workers])

    def _work(self, connection: Connection) -> None:
        """What a process does, until its parent is gone."""
        gc.freeze()  # to look for garbage in what is shared would copy it
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                batch: range = connection.recv()
                connection.send([self._function(self._items[number]) for number in batch])

    def _give_batches(self, told: int) -> None:
        for _ in range(_BATCHES_EACH):
            for worker in self._workers:
                if len(worker.batches) < _BATCHES_EACH and (batch := self._next(told)):
                    worker.give(batch)

    def _next(self, told: int) -> range | None:
        """The next batch, smaller towards the end, so that all end at the same time."""
        if self._again:
            return self._again.popleft()
        left = len(self._items) - self._begun
        if not left or self._begun - told > _MAX_AHEAD:
            return None
        size = max(1, min(_MAX_BATCH, left // (4 * len(self._workers))))
        self._begun += size
        return range(self._begun - size, self._begun)

    def _receive(self, worker: _Worker) -> None:
        try:
            results: list[Result] = worker.connection.recv()
        except (EOFError, ConnectionError):
            self._replace(worker)
        else:
            self._results.update(zip(worker.batches.popleft(), results, strict=True))

    def _replace(self, worker: _Worker) -> None:
        """Start another process for one that is gone, and find out which item ended it."""
        self._workers.remove(worker)
        code = worker.end()
        suspect, *others = worker.batches
        if len(suspect) == 1:
            self._results[suspect[0]] = self._lost(code)
        else:
            self._again.extend(range(number, number + 1) for number in suspect)
        self._again.extend(others)
        self._workers.append(self._start(worker.cores))
