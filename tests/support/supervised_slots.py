"""A worker slot with fake workers, and a list of what it reports to its dispatcher."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.pool.frames import Fields, Frame, Kind
from service.pool.job import Job
from service.pool.worker_slot import WorkerSlot
from tests.support.fake_workers import FakeVersions, FakeWorker, FakeWorkers, plan
from tests.support.virtual_time import settle

ONE: Fields = {"name": "tiny", "version": 1}
TWO: Fields = {"name": "tiny", "version": 2}


class Supervised:
    """A slot, its workers, and what it has reported so far; itself its slot's `SlotEvents`."""

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.workers = FakeWorkers()
        self.source = FakeVersions(ONE)
        self.slot = WorkerSlot(plan(3, 5), self.workers.start, self, self.source)

    @property
    def worker(self) -> FakeWorker:
        return self.workers.latest

    @property
    def sentence(self) -> str:
        return str(self.slot.state)

    def new_reports(self) -> list[str]:
        found, self.reports = self.reports, []
        return found

    def on_idle(self, slot: WorkerSlot) -> None:
        assert slot.state.state == "idle"
        self.reports.append("idle")

    def on_unusable(self, slot: WorkerSlot) -> None:
        assert slot is self.slot
        self.reports.append("unusable")

    def on_answer(self, job: Job, frame: Frame) -> None:
        self.reports.append(f"answer to {job.number}: {bytes(frame.body).decode()}")

    def on_prefetched_started(self, slot: WorkerSlot, job: Job) -> None:
        assert slot is self.slot
        self.reports.append(f"started {job.number}")

    def on_lost(self, job: Job) -> None:
        self.reports.append(f"lost {job.number}")

    def on_prefetched_lost(self, job: Job) -> None:
        self.reports.append(f"prefetched {job.number} lost")


@asynccontextmanager
async def supervised(*start_errors: Exception) -> AsyncIterator[Supervised]:
    """A slot whose worker is idle, unless starts shall fail first."""
    slot = Supervised()
    slot.workers.start_errors.extend(start_errors)
    task = asyncio.create_task(slot.slot.supervise())
    await settle()
    if not start_errors:
        assert slot.new_reports() == ["idle"]
    try:
        yield slot
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if slot.slot.first_start.done():
            slot.slot.first_start.exception()


def job(number: int) -> Job:
    answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
    return Job(number, Kind.CLASSIFY, {}, b"body %d" % number, answer, 0.0, 30.0)
