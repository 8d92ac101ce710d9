"""The queue in front of the workers: admission, deadlines, second attempts.

One bounded first-in-first-out queue. While it is long, a busy worker prefetches its next
job, so that it need not wait for the event loop: 6 to 10 % more images a second on two
cores. A prefetched job that waits behind a long one is stolen by the next idle worker. A
job past its deadline is answered at that moment, wherever it is. All of it runs in
callbacks of the event loop: a job costs one future, no timer, no task and no thread.
"""

import asyncio
import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from service.engine import LeafcodeError
from service.errors import DeadlineError, NotReadyError, OverloadedError, WorkerLostError
from service.pool import frames
from service.pool.frames import Fields, Frame, Kind
from service.pool.job import Deadlines, Job, Outcome, Timings
from service.pool.worker_slot import WorkerSlot
from service.settings import Settings

__all__ = ["MAX_PREFETCH_BYTES", "Dispatcher"]

MAX_PREFETCH_BYTES = 262_144
"""Larger bodies take longer, and would wait in memory beside the queue, which is bounded."""

_MAX_ATTEMPTS = 2
# How much one answer moves the mean service time that `Retry-After` is computed from.
_MEAN_WEIGHT = 0.05
# A timer may fire this much before the running time that it stands for is over.
_TIMER_SLACK = 0.05
# A prefetched job is stolen once it has waited for this many mean jobs, and for this long.
_STEAL_AFTER_JOBS = 4
_STEAL_AFTER = 0.05


class Dispatcher:
    """Jobs that wait, slots whose worker is idle, and how they meet."""

    def __init__(self, settings: Settings, n_workers: int) -> None:
        self.accepting = False
        self.queue_bytes = 0
        self.rejections: Counter[str] = Counter()
        self.drained = asyncio.Event()
        self._settings = settings
        self._n_workers = n_workers
        self._idle: list[WorkerSlot] = []
        # Jobs that were sent to workers, and those among them that are only prefetched.
        self._sent: dict[Job, WorkerSlot] = {}
        self._prefetched: dict[Job, None] = {}
        self._queue: OrderedDict[int, Job] = OrderedDict()
        self._deadlines = Deadlines(self._on_deadline)
        self._steal_timer: asyncio.TimerHandle | None = None
        self._numbers = itertools.count(1)
        self._mean_seconds = 0.0
        self._loop = asyncio.get_running_loop()

    @property
    def queue_depth(self) -> int:
        """How many jobs wait."""
        return len(self._queue)

    @property
    def would_wait(self) -> bool:
        """Whether a new job would have to wait."""
        return not self._idle

    async def run(
        self,
        kind: Kind,
        fields: Fields,
        body: bytes,
        timeout: float | None,  # noqa: ASYNC109
    ) -> Outcome[Frame]:
        """One job from admission to its answer."""
        (job,) = self._submit(kind, fields, [body], timeout)
        try:
            return _outcome(job, await job.answer)
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    async def run_many(
        self,
        kind: Kind,
        fields: Fields,
        bodies: Sequence[bytes],
        timeout: float | None,  # noqa: ASYNC109
    ) -> list[Outcome[Frame] | LeafcodeError]:
        """Jobs that are accepted together; each has an outcome or an error of its own."""
        jobs = self._submit(kind, fields, bodies, timeout)
        try:
            answers = await asyncio.gather(*(job.answer for job in jobs), return_exceptions=True)
        except asyncio.CancelledError:
            for job in jobs:
                self._abandon(job)
            raise
        return [_settled(job, answer) for job, answer in zip(jobs, answers, strict=True)]

    def drain(self) -> None:
        """Reject new jobs from now on; `drained` is set when those accepted are answered."""
        self.accepting = False
        self._note_progress()

    def give_up(self) -> None:
        """Answer all that is left, because the service stops now."""
        for job in (*self._queue.values(), *self._sent):
            job.fail(NotReadyError("the service stopped before this job was done"))
        self._deadlines.stop()
        if self._steal_timer is not None:
            self._steal_timer.cancel()

    # -- Admission ------------------------------------------------------------------------

    def _submit(
        self, kind: Kind, fields: Fields, bodies: Sequence[bytes], timeout: float | None
    ) -> list[Job]:
        """All of the jobs, or the error that rejects all of them."""
        self.check_room(bodies)
        now, longest = self._loop.time(), float(self._settings.deadline_seconds)
        deadline = now + (longest if timeout is None else min(timeout, longest))
        jobs = []
        for body in bodies:
            number, answer = next(self._numbers), self._loop.create_future()
            job = Job(number, kind, fields, body, answer, now, deadline)
            self._deadlines.set(job, deadline)
            jobs.append(job)
            self._dispatch(job)
        return jobs

    def check_room(self, bodies: Sequence[bytes] = (b"",)) -> None:
        """Raise what rejects jobs with these bodies now."""
        if not self.accepting:
            self.rejections["not-ready"] += 1
            raise NotReadyError("the service is starting or stopping, try again in a moment")
        # An empty queue takes any one request, so that none is rejected for ever.
        if not self._queue:
            return
        room = self._settings.queue_size - len(self._queue)
        room_bytes = self._settings.queue_bytes - self.queue_bytes
        if len(bodies) > room or sum(map(len, bodies)) > room_bytes:
            self.rejections["queue-full"] += 1
            seconds = self._seconds_to_empty()
            raise OverloadedError(
                f"the queue is full, jobs that wait: {len(self._queue)}; try again in {seconds} s",
                seconds,
            )

    def _seconds_to_empty(self) -> int:
        """How long the queue needs at the recent pace; whole seconds, at least one."""
        workers = max(1, len(self._sent) - len(self._prefetched))
        return max(1, math.ceil(len(self._queue) * self._mean_seconds / workers))

    # -- From the queue to a worker and back ------------------------------------------------

    def _dispatch(self, job: Job, *, first: bool = False) -> None:
        """To a worker if one is idle, else into the queue, at its front if `first`."""
        if self._idle:
            # The same few again and again, whose caches are warm; the last one shares its
            # core with the event loop.
            lowest = min(self._idle, key=lambda slot: slot.number)
            self._idle.remove(lowest)
            self._start(job, lowest)
            return
        self._queue[job.number] = job
        self.queue_bytes += len(job.body)
        if first:
            self._queue.move_to_end(job.number, last=False)

    def _start(self, job: Job, slot: WorkerSlot) -> None:
        job.started = self._loop.time()
        job.attempts += 1
        self._sent[job] = slot
        slot.start_job(job)

    def _prefetch(self, slot: WorkerSlot) -> None:
        """Let a busy worker have one more job, if enough are left for the others."""
        if len(self._queue) < self._n_workers or not slot.can_prefetch:
            return
        job = next(iter(self._queue.values()))
        if len(job.body) <= MAX_PREFETCH_BYTES:
            self._pop_queue()
            job.prefetched = self._loop.time()
            self._sent[job], self._prefetched[job] = slot, None
            slot.prefetch(job)

    def _pop_queue(self) -> Job:
        _, job = self._queue.popitem(last=False)
        self.queue_bytes -= len(job.body)
        return job

    def _take_out(self, job: Job) -> bool:
        """Remove a job from the queue; whether it was there."""
        if self._queue.pop(job.number, None) is None:
            return False
        self.queue_bytes -= len(job.body)
        self._deadlines.drop(job)
        return True

    def _abandon(self, job: Job) -> None:
        """Nobody waits for it any more: drop it if it is queued, else let it end."""
        if self._take_out(job):
            self.rejections["client-gone"] += 1
        self._note_progress()

    def _note_progress(self) -> None:
        if not self.accepting and all(
            job.answer.done() for job in (*self._queue.values(), *self._sent)
        ):
            self.drained.set()

    # -- Work stealing ---------------------------------------------------------------------

    @property
    def _longest_wait(self) -> float:
        """How long a prefetched job may wait for its worker."""
        return max(_STEAL_AFTER_JOBS * self._mean_seconds, _STEAL_AFTER)

    def _steal(self) -> Job | None:
        """A prefetched job that has waited for too long; its worker keeps a copy."""
        latest = self._loop.time() - self._longest_wait
        for job in self._prefetched:  # in the order in which they were prefetched
            if job.prefetched <= latest and not job.answer.done():
                self._leave_copy(job)
                return job
        return None

    def _leave_copy(self, job: Job) -> None:
        """Take a job away from its worker, which was sent it and will work on it for nobody.

        The copy is a job whose client has gone: it keeps its slot busy until the worker has
        answered it, and costs the worker if it runs for too long.
        """
        slot = self._sent.pop(job)
        del self._prefetched[job]
        copy = replace(job, answer=self._loop.create_future())
        copy.answer.cancel()
        self._deadlines.set(copy, copy.deadline)
        self._sent[copy], self._prefetched[copy] = slot, None
        slot.replace_prefetched(copy)
        job.number = next(self._numbers)  # the worker's answer is to the old one

    def _steal_later(self) -> None:
        """Look for prefetched jobs to steal when they may have waited for too long."""
        if self._prefetched and self._steal_timer is None:
            self._steal_timer = self._loop.call_later(self._longest_wait, self._steal_now)

    def _steal_now(self) -> None:
        self._steal_timer = None
        while self._idle and (job := self._steal()) is not None:
            self._dispatch(job)
        if self._idle:
            self._steal_later()

    # -- Deadlines -------------------------------------------------------------------------

    def _on_deadline(self, job: Job) -> None:
        started = not self._take_out(job) and job not in self._prefetched
        if not job.answer.done():
            self.rejections["deadline"] += 1
            seconds = self._loop.time() - job.accepted
            where = "the job was running" if started else "the job was still queued"
            job.fail(DeadlineError(f"there was no answer after {seconds:.3g} s, {where}"))
        if started:
            self._limit(job)
        self._note_progress()

    def _limit(self, job: Job) -> None:
        """Replace the worker that runs `job` once it has run for as long as any job may.

        Not before: a client with a short timeout, or a job that waited long, says
        nothing against the worker.
        """
        longest = self._settings.deadline_seconds
        end = job.started + longest
        if end - self._loop.time() > _TIMER_SLACK:
            self._deadlines.set(job, end)
        elif job in self._sent:
            self._sent[job].kill(f"a job ran for {longest} s, the longest allowed")

    # -- What slots report ------------------------------------------------------------------

    def on_idle(self, slot: WorkerSlot) -> None:
        """Give it the job that waits longest."""
        job = self._steal() or (self._pop_queue() if self._queue else None)
        if job is None:
            self._idle.append(slot)
            self._steal_later()
            return
        self._start(job, slot)
        self._prefetch(slot)

    def on_unusable(self, slot: WorkerSlot) -> None:
        """Give it no more jobs."""
        if slot in self._idle:
            self._idle.remove(slot)

    def on_answer(self, job: Job, frame: Frame) -> None:
        """Pass the answer on, unless nobody waits for it."""
        del self._sent[job]
        self._deadlines.drop(job)
        if not job.answer.done():
            job.answer.set_result(frame)
        weight = _MEAN_WEIGHT if self._mean_seconds else 1.0
        self._mean_seconds += weight * (self._loop.time() - job.started - self._mean_seconds)
        self._note_progress()

    def on_prefetched_started(self, slot: WorkerSlot, job: Job) -> None:
        """Count its running time from now on."""
        del self._prefetched[job]
        job.started = self._loop.time()
        job.attempts += 1
        if job.deadline <= job.started:
            self._limit(job)
        self._prefetch(slot)

    def on_lost(self, job: Job) -> None:
        """Try once more, before all others; then give up."""
        del self._sent[job]
        if not job.answer.done() and job.attempts < _MAX_ATTEMPTS:
            self._dispatch(job, first=True)
            return
        self._deadlines.drop(job)
        if not job.answer.done():
            self.rejections["worker-lost"] += 1
            job.fail(
                WorkerLostError(
                    f"the processes of {job.attempts} workers ended during this job; "
                    "it is not tried again"
                )
            )
        self._note_progress()

    def on_prefetched_lost(self, job: Job) -> None:
        """Put it back, as if it had never left the queue."""
        del self._sent[job], self._prefetched[job]
        if job.answer.done():
            self._deadlines.drop(job)
        else:
            self._dispatch(job, first=True)
        self._note_progress()


def _outcome(job: Job, frame: Frame) -> Outcome[Frame]:
    if frame.kind is not Kind.DONE or frame.times is None:
        raise frames.reported_error(frame)
    unknown = frame.fields.get("unknown")
    # A worker that an image took over may send anything.
    counted = unknown if type(unknown) is int and unknown > 0 else 0
    return Outcome(frame, Timings(job.started - job.accepted, *frame.times, counted))


def _settled(job: Job, answer: Frame | BaseException) -> Outcome[Frame] | LeafcodeError:
    try:
        if isinstance(answer, BaseException):
            raise answer
        return _outcome(job, answer)
    except LeafcodeError as error:
        return error
