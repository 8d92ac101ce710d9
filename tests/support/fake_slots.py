"""A dispatcher without workers: fake slots, and jobs whose every moment is exact.

All of it runs on the clock of `tests.support.virtual_time`.
"""

import asyncio
from collections.abc import Iterable

from service.pool.dispatcher import Dispatcher
from service.pool.frames import Frame, Kind
from service.pool.job import Job, Outcome
from service.pool.worker_slot import WorkerSlot
from service.settings import load_settings
from tests.support.fake_workers import done
from tests.support.virtual_time import settle

Task = asyncio.Task[Outcome[Frame]]


class FakeSlot(WorkerSlot):
    """A slot without a worker, for the dispatcher alone: tests say how its jobs end."""

    def __init__(self, number: int, dispatcher: Dispatcher) -> None:
        self._number = number
        self._dispatcher = dispatcher
        self.running: Job | None = None
        self.next: Job | None = None
        self.killed_at: list[tuple[float, str]] = []
        self.prefetches = True

    @property
    def number(self) -> int:
        return self._number

    @property
    def can_prefetch(self) -> bool:
        return self.prefetches and self.running is not None and self.next is None

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the job that runs and of the one that was prefetched."""
        return [bytes(job.body) for job in (self.running, self.next) if job is not None]

    def start_job(self, job: Job) -> None:
        assert self.running is None
        self.running = job

    def prefetch(self, job: Job) -> None:
        assert self.can_prefetch
        self.next = job

    def replace_prefetched(self, copy: Job) -> None:
        assert self.next is not None
        assert self.next.number == copy.number
        self.next = copy

    def kill(self, reason: str) -> None:
        self.killed_at.append((asyncio.get_running_loop().time(), reason))

    def finish(self, frame: Frame | None = None) -> None:
        """Answer the running job, and go on with the prefetched one."""
        job, self.running, self.next = self.running, self.next, None
        assert job is not None
        self._dispatcher.on_answer(job, frame or done(job.frame()))
        if self.running is None:
            self._dispatcher.on_idle(self)
        else:
            self._dispatcher.on_prefetched_started(self, self.running)

    def lose(self) -> None:
        """Lose the worker and its jobs."""
        (job, self.running), (prefetched, self.next) = (self.running, None), (self.next, None)
        self._dispatcher.on_unusable(self)
        if prefetched is not None:
            self._dispatcher.on_prefetched_lost(prefetched)
        if job is not None:
            self._dispatcher.on_lost(job)


async def outcomes(
    tasks: Iterable["asyncio.Task[Outcome[Frame]]"],
) -> list[bytes | BaseException]:
    """The bodies of the answers, or the errors, of jobs."""
    found = await asyncio.gather(*tasks, return_exceptions=True)
    return [item if isinstance(item, BaseException) else bytes(item.value.body) for item in found]


def accepting(**settings: int) -> Dispatcher:
    """A dispatcher for one worker that accepts jobs."""
    return accepting_for(1, **settings)


def accepting_for(n_workers: int, **settings: int) -> Dispatcher:
    dispatcher = Dispatcher(load_settings(**settings), n_workers)
    dispatcher.accepting = True
    return dispatcher


def idle_slots(dispatcher: Dispatcher, count: int) -> list[FakeSlot]:
    slots = [FakeSlot(number, dispatcher) for number in range(count)]
    for slot in slots:
        dispatcher.on_idle(slot)
    return slots


async def submit(dispatcher: Dispatcher, body: bytes, timeout: float | None = None) -> Task:  # noqa: ASYNC109
    """A job that has reached the queue or a slot, or was rejected."""
    task = asyncio.create_task(dispatcher.run(Kind.CLASSIFY, {}, body, timeout))
    await settle()
    return task


async def submit_all(dispatcher: Dispatcher, *bodies: bytes) -> list[Task]:
    return [await submit(dispatcher, body) for body in bodies]


def now() -> float:
    return asyncio.get_running_loop().time()


async def pass_until(moment: float) -> None:
    """Let everything happen that happens up to a moment."""
    await asyncio.sleep(moment - now())
    await settle()


def is_forgotten(dispatcher: Dispatcher) -> bool:
    """Whether no table holds a job any more."""
    tables = (dispatcher._queue, dispatcher._sent, dispatcher._prefetched)
    return not any(tables) and dispatcher.queue_bytes == 0


async def prefetched(**settings: int) -> tuple[Dispatcher, FakeSlot, list[Task]]:
    """A slot that runs `a` and has prefetched `b`, while `c` is queued."""
    dispatcher = accepting(**settings)
    tasks = await submit_all(dispatcher, b"a", b"b", b"c")
    (slot,) = idle_slots(dispatcher, 1)
    assert slot.bodies == [b"a", b"b"]
    return dispatcher, slot, tasks
