"""Deadlines of jobs, on a virtual clock."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from service.pool.frames import Kind
from service.pool.job import Deadlines, Job
from tests.support.virtual_time import VirtualTimeLoop, on_virtual_time

moments = st.integers(1, 20)
# Which job, and when to call for it; no moment drops it.
wishes = st.lists(st.tuples(st.integers(0, 4), st.none() | moments), max_size=12)


def make_job(number: int) -> Job:
    answer = asyncio.get_running_loop().create_future()
    return Job(number, Kind.CLASSIFY, {}, b"", answer, accepted=0.0, deadline=0.0)


@settings(max_examples=50)
@given(wishes)
def test_each_job_is_called_for_once_at_the_last_moment_that_was_set(
    wishes: list[tuple[int, int | None]],
) -> None:
    async def run() -> list[tuple[int, float]]:
        loop, called = asyncio.get_running_loop(), []
        deadlines = Deadlines(lambda job: called.append((job.number, loop.time())))
        jobs = [make_job(number) for number in range(5)]
        for number, moment in wishes:
            if moment is None:
                deadlines.drop(jobs[number])
            else:
                deadlines.set(jobs[number], float(moment))
        await asyncio.sleep(30)
        return called

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        called = runner.run(run())
    last = dict(wishes)
    assert sorted(called) == sorted((n, float(m)) for n, m in last.items() if m is not None)


@on_virtual_time
async def test_a_job_may_be_given_another_moment_when_its_own_has_come() -> None:
    loop, called = asyncio.get_running_loop(), []

    def extend(job: Job) -> None:
        called.append(loop.time())
        if loop.time() < 3:
            deadlines.set(job, loop.time() + 1)

    deadlines = Deadlines(extend)
    deadlines.set(make_job(0), 1.0)
    await asyncio.sleep(10)
    assert called == [1.0, 2.0, 3.0]


@on_virtual_time
async def test_a_moment_that_is_set_when_another_has_come_leaves_earlier_ones() -> None:
    loop, called = asyncio.get_running_loop(), []

    def extend_the_first(job: Job) -> None:
        called.append((job.number, loop.time()))
        if loop.time() == 1:
            deadlines.set(job, 10.0)

    deadlines = Deadlines(extend_the_first)
    deadlines.set(make_job(0), 1.0)
    deadlines.set(make_job(1), 5.0)
    await asyncio.sleep(20)
    assert called == [(0, 1.0), (1, 5.0), (0, 10.0)]


@on_virtual_time
async def test_a_job_that_another_one_drops_at_the_same_moment_is_not_called_for() -> None:
    called: list[int] = []
    jobs = [make_job(number) for number in range(2)]

    def drop_the_other(job: Job) -> None:
        called.append(job.number)
        deadlines.drop(jobs[1 - job.number])

    deadlines = Deadlines(drop_the_other)
    for job in jobs:
        deadlines.set(job, 1.0)
    await asyncio.sleep(2)
    assert called == [0]


@on_virtual_time
async def test_nothing_is_called_once_all_is_stopped() -> None:
    called: list[Job] = []
    deadlines = Deadlines(called.append)
    deadlines.set(make_job(0), 1.0)
    deadlines.stop()
    await asyncio.sleep(2)
    assert called == []
