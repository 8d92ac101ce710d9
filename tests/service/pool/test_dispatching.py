"""Dispatcher, slots and fake workers together, whatever happens to them in whatever order.

A state machine makes clients come and leave, workers answer, fail, hang, crash and not start,
versions change and time pass. It is the same sequence of examples in every run.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from service.engine import LeafcodeError, UnsupportedImageError
from service.errors import DeadlineError, NotReadyError, OverloadedError, WorkerLostError
from service.pool.dispatcher import MAX_PREFETCH_BYTES, Dispatcher
from service.pool.frames import Fields, Frame, Kind, report_error
from service.pool.job import Job, Outcome
from service.pool.worker_slot import Versions, WorkerSlot
from service.settings import load_settings
from tests.support.fake_workers import FakeVersions, FakeWorker, FakeWorkers, plan
from tests.support.virtual_time import VirtualTimeLoop

N_SLOTS = 2
DEADLINE = 10
PING_SECONDS = 1.0
VERSIONS: tuple[Fields, ...] = tuple({"name": "tiny", "version": number} for number in (1, 2, 3))

Value = TypeVar("Value")
Answer = Outcome[Frame] | LeafcodeError

slot_numbers = st.integers(0, N_SLOTS - 1)
# Enough at once to make workers prefetch, and now and then a body that is not prefetched.
paddings = st.sampled_from([[0], [5, 0], [0] * 5, [3] * 6, [0, MAX_PREFETCH_BYTES, 0]])
timeouts = st.sampled_from([None, None, None, 0.5, 4.0])
versions = st.sets(st.sampled_from(range(len(VERSIONS))))
# How far the event loop gets before the next thing happens: so many turns, or to the end.
turns = st.sampled_from([None, None, 0, 1, 2])


class Request:
    """Bodies that were submitted together, and how they were answered."""

    def __init__(self, bodies: list[bytes], deadline: float) -> None:
        self.bodies = bodies
        self.deadline = deadline
        self.answers: list[Answer] | None = None
        self.was_rejected = False
        self.has_left = False
        self.answered = 0.0
        self.task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.was_rejected or self.has_left or self.answers is not None

    async def send(self, dispatcher: Dispatcher, timeout: float | None) -> None:  # noqa: ASYNC109
        """Run one job or several, and note how it ended."""
        try:
            if len(self.bodies) == 1:
                answers = [await _caught(dispatcher, self.bodies[0], timeout)]
            else:
                answers = await dispatcher.run_many(Kind.CLASSIFY, {}, self.bodies, timeout)
        except (OverloadedError, NotReadyError):
            self.was_rejected = True
        else:
            assert self.answers is None
            self.answers = answers
            self.answered = asyncio.get_running_loop().time()

    def check(self) -> None:
        """Each body has an answer, its own, and in time."""
        if self.answers is None:
            return
        assert len(self.answers) == len(self.bodies)
        assert self.answered <= self.deadline + 1e-6
        for body, answer in zip(self.bodies, self.answers, strict=True):
            if isinstance(answer, Outcome):
                assert answer.value.body == body
            elif isinstance(answer, UnsupportedImageError):
                assert str(answer) == name_of(body)
            elif isinstance(answer, DeadlineError):
                assert abs(self.answered - self.deadline) < 1e-6
            elif isinstance(answer, WorkerLostError):
                assert "the processes of 2 workers ended" in str(answer)
            else:
                assert isinstance(answer, NotReadyError)


async def _caught(dispatcher: Dispatcher, body: bytes, timeout: float | None) -> Answer:  # noqa: ASYNC109
    try:
        return await dispatcher.run(Kind.CLASSIFY, {}, body, timeout)
    except (UnsupportedImageError, DeadlineError, WorkerLostError) as error:
        return error
    except NotReadyError as error:
        if "stopped" in str(error):
            return error
        raise


def name_of(body: bytes) -> str:
    return body.rstrip(b".").decode()


class Dispatching(RuleBasedStateMachine):
    """What may happen, and what must be true all the time and in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []
        self.n_bodies = 0
        self.source = FakeVersions(*VERSIONS[:1])
        self.update: asyncio.Task[None] | None = None
        self.errors: list[dict[str, Any]] = []
        self.loop = VirtualTimeLoop()
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self.run(self._start())

    # -- The machinery ------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, Value]) -> Value:
        return self.loop.run_until_complete(main)

    def do(self, action: Callable[[], object], n_turns: int | None) -> None:
        async def act() -> None:
            action()
            if n_turns is None:
                await self.loop.settle()
            else:
                for _ in range(n_turns):
                    await asyncio.sleep(0)

        self.run(act())

    async def _start(self) -> None:
        limits = load_settings(queue_size=8, queue_bytes=1_000_000, deadline_seconds=DEADLINE)
        self.dispatcher = Dispatcher(limits, N_SLOTS)
        self.workers = [FakeWorkers() for _ in range(N_SLOTS)]
        self.slots = [
            WorkerSlot(plan(number), workers.start, self.dispatcher, self.source)
            for number, workers in enumerate(self.workers)
        ]
        self.tasks = [self.loop.create_task(slot.supervise()) for slot in self.slots]
        await self.loop.settle()
        self.dispatcher.accepting = True
        self.ping()

    def ping(self) -> None:
        for slot in self.slots:
            slot.check()
        self.heartbeat = self.loop.call_later(PING_SECONDS, self.ping)

    def worker(self, number: int) -> FakeWorker | None:
        """The living worker of a slot, if there is one."""
        started = self.workers[number].started
        return started[-1] if started and started[-1].alive else None

    def bodies(self, sizes: Iterable[int]) -> list[bytes]:
        """Bodies of which no two are the same."""
        found = []
        for size in sizes:
            self.n_bodies += 1
            found.append(b"%d" % self.n_bodies + b"." * size)
        return found

    # -- What may happen ----------------------------------------------------------------------

    @initialize(gives_up=st.booleans())
    def choose_the_end(self, *, gives_up: bool) -> None:
        self.gives_up = gives_up

    @rule(sizes=paddings, timeout=timeouts, n_turns=turns)
    def a_request_comes(self, sizes: list[int], timeout: float | None, n_turns: int | None) -> None:
        limit = min(DEADLINE, DEADLINE if timeout is None else timeout)
        request = Request(self.bodies(sizes), self.loop.time() + limit)
        self.requests.append(request)

        def send() -> None:
            request.task = self.loop.create_task(request.send(self.dispatcher, timeout))

        self.do(send, n_turns)
        if n_turns == 0:
            self.do(lambda: None, 1)  # it reaches the dispatcher before time passes

    @precondition(lambda self: any(not request.is_over for request in self.requests))
    @rule(data=st.data(), n_turns=turns)
    def a_client_leaves(self, data: st.DataObject, n_turns: int | None) -> None:
        waiting = [request for request in self.requests if not request.is_over]
        request = data.draw(st.sampled_from(waiting))
        assert request.task is not None
        if request.task.cancel():
            request.has_left = True
        self.do(lambda: None, n_turns)

    @rule(number=slot_numbers, fails=st.booleans(), n_turns=turns)
    def a_worker_answers(self, number: int, *, fails: bool, n_turns: int | None) -> None:
        worker = self.worker(number)
        if worker is None or not worker.can_answer:
            return
        job = worker.inbox[0]
        error = UnsupportedImageError(name_of(bytes(job.body)))
        self.do(lambda: worker.answer(report_error(job.job, error) if fails else None), n_turns)

    @rule(number=slot_numbers, count=st.integers(1, 3))
    def a_worker_goes_on_and_answers(self, number: int, count: int) -> None:
        self.a_worker_goes_on(number, None)
        for _ in range(count):
            self.a_worker_answers(number, fails=False, n_turns=None)
        self.time_passes(0.06)

    @rule(number=slot_numbers, n_turns=turns)
    def a_worker_crashes(self, number: int, n_turns: int | None) -> None:
        if (worker := self.worker(number)) is not None:
            self.do(worker.crash, n_turns)

    @rule(number=slot_numbers, seconds=st.sampled_from([0.0, 0.06, 2.5]))
    def a_worker_hangs(self, number: int, seconds: float) -> None:
        if (worker := self.worker(number)) is not None:
            worker.hangs = True
            self.time_passes(seconds)

    @rule(number=slot_numbers, n_turns=turns)
    def a_worker_goes_on(self, number: int, n_turns: int | None) -> None:
        if (worker := self.worker(number)) is not None:
            self.do(worker.go_on, n_turns)

    @rule(number=slot_numbers)
    def a_worker_falls_behind_until_its_prefetched_job_is_stolen(self, number: int) -> None:
        self.a_request_comes([0] * 6, None, None)
        self.a_worker_hangs(number, 0.0)
        for other in set(range(N_SLOTS)) - {number}:
            self.a_worker_goes_on_and_answers(other, 8)
        self.time_passes(min(4.0, 2 * self.dispatcher._longest_wait))
        # The late answer to the stolen job must not be taken for that of one of these.
        self.a_request_comes([0] * 3, None, None)
        self.a_worker_goes_on(number, None)

    @rule(number=slot_numbers, lost=st.booleans())
    def the_next_start_will_fail(self, number: int, *, lost: bool) -> None:
        error = WorkerLostError("it is gone") if lost else OSError("no memory")
        self.workers[number].start_errors.append(error)

    @precondition(lambda self: self.update is None or self.update.done())
    @rule(wanted=versions, retiring=versions, n_turns=turns)
    def versions_change(self, wanted: set[int], retiring: set[int], n_turns: int | None) -> None:
        self.source.current = Versions(
            tuple(VERSIONS[number] for number in sorted(wanted)),
            tuple(VERSIONS[number] for number in sorted(retiring - wanted)),
        )

        def begin() -> None:
            self.update = self.loop.create_task(self._update())

        self.do(begin, n_turns)

    async def _update(self) -> None:
        for slot in self.slots:
            with suppress(WorkerLostError):
                await slot.update_versions()

    @rule(seconds=st.sampled_from([0.01, 0.06, 0.06, 0.6, 0.6, 2.0, 5.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    # -- What must be true all the time ---------------------------------------------------------

    @invariant()
    def the_bytes_of_the_queue_are_those_that_wait(self) -> None:
        queued = self.dispatcher._queue.values()
        assert self.dispatcher.queue_bytes == sum(len(job.body) for job in queued)
        assert self.dispatcher.queue_depth == len(queued)

    @invariant()
    def a_job_is_queued_or_sent_but_not_both(self) -> None:
        queued, sent = set(self.dispatcher._queue.values()), set(self.dispatcher._sent)
        assert not queued & sent
        assert set(self.dispatcher._prefetched) <= sent
        assert not any(job.answer.done() for job in queued)

    @invariant()
    def no_slot_is_both_idle_and_busy(self) -> None:
        idle = self.dispatcher._idle
        assert len(set(idle)) == len(idle)
        for slot in idle:
            assert slot.state.state == "idle"
            assert slot not in self.dispatcher._sent.values()
        assert not (idle and self.dispatcher._queue)

    @invariant()
    def a_slot_has_one_job_that_runs_and_one_that_is_prefetched(self) -> None:
        for slot in self.slots:
            sent = [job for job, at in self.dispatcher._sent.items() if at is slot]
            running = [job for job in sent if job not in self.dispatcher._prefetched]
            waiting = [job for job in sent if job in self.dispatcher._prefetched]
            assert _only(running) is slot._job
            assert _only(waiting) is slot._prefetched

    @invariant()
    def a_worker_has_been_sent_what_its_slot_says(self) -> None:
        for number, slot in enumerate(self.slots):
            worker = self.worker(number)
            if worker is not None and slot._worker is worker:
                sent = [frame.job for frame in worker.inbox if frame.kind is Kind.CLASSIFY]
                known = [job.number for job in (slot._job, slot._prefetched) if job is not None]
                assert sent == known

    @invariant()
    def no_worker_that_works_is_thought_idle_or_silent(self) -> None:
        for number, slot in enumerate(self.slots):
            worker = self.worker(number)
            if worker is not None and slot.state.state in ("idle", "silent"):
                assert not any(frame.kind is Kind.CLASSIFY for frame in worker.inbox)

    @invariant()
    def every_answer_is_the_right_one_and_comes_in_time(self) -> None:
        for request in self.requests:
            request.check()
            assert request.is_over or self.loop.time() <= request.deadline + 1e-6

    @invariant()
    def no_callback_fails(self) -> None:
        assert self.errors == []

    # -- What must be true in the end -----------------------------------------------------------

    def teardown(self) -> None:
        try:
            self.run(self._end())
            for request in self.requests:
                assert request.is_over
                request.check()
            self.no_callback_fails()
        finally:
            self.heartbeat.cancel()
            for task in self.tasks:
                task.cancel()
            self.run(self._wait_for(self.tasks))
            for slot in self.slots:
                if slot.first_start.done():
                    slot.first_start.exception()
            self.loop.close()

    async def _end(self) -> None:
        self.dispatcher.drain()
        if getattr(self, "gives_up", False):
            self.dispatcher.give_up()
            await self.loop.settle()
            return
        await self._finish()
        assert self.dispatcher.drained.is_set()
        assert self.dispatcher.queue_bytes == 0
        assert not self.dispatcher._queue
        assert not self.dispatcher._sent
        assert not self.dispatcher._prefetched
        assert self.dispatcher._idle
        assert {slot.state.state for slot in self.slots} == {"idle"}
        await self._update()
        self._check_versions()

    async def _finish(self) -> None:
        """Let all workers start, go on and answer until nothing is left to do."""
        for workers in self.workers:
            workers.start_errors.clear()
        for _ in range(200):
            for number in range(N_SLOTS):
                if (worker := self.worker(number)) is not None:
                    worker.go_on()
                    while worker.can_answer:
                        worker.answer()
            await self.loop.settle()
            if self.dispatcher.drained.is_set() and not self.dispatcher._sent:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(PING_SECONDS * 4)  # longer than any worker waits before it starts
        if self.update is not None:
            await self.update

    def _check_versions(self) -> None:
        for number in range(N_SLOTS):
            worker = self.worker(number)
            assert worker is not None
            assert all(fields in worker.loaded for fields in self.source.current.wanted)
            allowed = self.source.current.wanted + self.source.current.retiring
            assert all(fields in allowed for fields in worker.loaded)

    @staticmethod
    async def _wait_for(tasks: Iterable["asyncio.Task[None]"]) -> None:
        await asyncio.gather(*tasks, return_exceptions=True)


def _only(jobs: list[Job]) -> Job | None:
    assert len(jobs) <= 1
    return jobs[0] if jobs else None


def test_whatever_happens_every_accepted_job_is_answered_once_and_none_is_left() -> None:
    run_state_machine_as_test(
        Dispatching,
        settings=settings(
            derandomize=True,
            database=None,
            deadline=None,
            max_examples=150,
            stateful_step_count=50,
            suppress_health_check=list(HealthCheck),
        ),
    )
