"""The queue in front of the workers: admission, deadlines, second tries.

One bounded first-in-first-out queue. While it is long, a busy worker has its next job in
its hand already, so that it need not wait for the event loop: 6 to 10 % more images a
second on two cores. A job that waits there behind a long one is done by another worker. A
job past its deadline is answered at that moment, wherever it is. All of it runs in
callbacks of the event loop: a job costs one future and one timer, no task and no thread.
"""

import asyncio
import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Sequence

from service.engine import LeafcodeError
from service.errors import DeadlineError, NotReadyError, OverloadedError, WorkerLostError
from service.pool import frames
from service.pool.frames import Fields, Frame, Kind
from service.pool.job import Job, Outcome, Timings
from service.pool.worker_slot import Place
from service.settings import Settings

__all__ = ["Dispatcher"]

_MOST_ATTEMPTS = 2
# How much one answer moves the mean service time that `Retry-After` is computed from.
_MEAN_WEIGHT = 0.05
# A timer may fire this much before the running time it stands for is over.
_TIMER_SLACK_SECONDS = 0.05
# Larger bodies take longer, and would wait in memory beside the queue, which is bounded.
_HANDY_BYTES = 262_144
# A job in a worker's hand that waits for longer than so many usual jobs, and than this, is
# done by the next worker that has time.
_STUCK_JOBS = 4
_STUCK_SECONDS = 0.05


class Dispatcher:
    """Jobs that wait, places that are idle, and how they meet."""

    def __init__(self, settings: Settings) -> None:
        self.accepting = False
        self.queue_bytes = 0
        self.refusals: Counter[str] = Counter()
        self.drained = asyncio.Event()
        self._settings = settings
        self._idle: list[Place] = []
        # Jobs that workers have; those that they have not come to yet are in their hands.
        self._running: dict[Job, Place] = {}
        self._in_hands: dict[Job, None] = {}
        self._helper: asyncio.TimerHandle | None = None
        self._queue: OrderedDict[int, Job] = OrderedDict()
        self._numbers = itertools.count(1)
        self._mean_seconds = 0.0
        self._loop = asyncio.get_running_loop()

    @property
    def queue_depth(self) -> int:
        """Jobs that wait."""
        return len(self._queue)

    @property
    def would_wait(self) -> bool:
        """Whether a new job would have to."""
        return not self._idle

    async def run(
        self, kind: Kind, fields: Fields, body: bytes, seconds: float | None
    ) -> Outcome[Frame]:
        """One job from admission to its answer."""
        (job,) = self._submit(kind, fields, [body], seconds)
        try:
            return _outcome(job, await job.answer)
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    async def run_many(
        self, kind: Kind, fields: Fields, bodies: Sequence[bytes], seconds: float | None
    ) -> list[Outcome[Frame] | LeafcodeError]:
        """Jobs that are accepted together; each has an outcome or an error of its own."""
        jobs = self._submit(kind, fields, bodies, seconds)
        try:
            answers = await asyncio.gather(*(job.answer for job in jobs), return_exceptions=True)
        except asyncio.CancelledError:
            for job in jobs:
                self._abandon(job)
            raise
        return [_settled(job, answer) for job, answer in zip(jobs, answers, strict=True)]

    def drain(self) -> None:
        """Refuse new jobs from now on; `drained` tells when those accepted are answered."""
        self.accepting = False
        self._note_progress()

    def give_up(self) -> None:
        """Answer all that is left: the service stops now."""
        for job in (*self._queue.values(), *self._running):
            job.fail(NotReadyError("the service stopped before this was done"))
            job.cancel_timer()
        if self._helper is not None:
            self._helper.cancel()

    # -- Admission ------------------------------------------------------------------------

    def _submit(
        self, kind: Kind, fields: Fields, bodies: Sequence[bytes], seconds: float | None
    ) -> list[Job]:
        """All of the jobs, or the error that refuses all of them."""
        self.check_room(bodies)
        now, longest = self._loop.time(), float(self._settings.deadline_seconds)
        deadline = now + (longest if seconds is None else min(seconds, longest))
        jobs = []
        for body in bodies:
            number, answer = next(self._numbers), self._loop.create_future()
            job = Job(number, kind, fields, body, answer, now, deadline)
            job.timer = self._loop.call_at(deadline, self._on_deadline, job)
            jobs.append(job)
            self._hand_out(job)
        return jobs

    def check_room(self, bodies: Sequence[bytes] = (b"",)) -> None:
        """Raise what refuses jobs with these bodies now."""
        if not self.accepting:
            self.refusals["not-ready"] += 1
            raise NotReadyError("the service is starting or stopping, try again in a moment")
        # An empty queue takes any one request, so that none is refused for ever.
        if not self._queue:
            return
        room = self._settings.queue_size - len(self._queue)
        room_bytes = self._settings.queue_bytes - self.queue_bytes
        if len(bodies) > room or sum(map(len, bodies)) > room_bytes:
            self.refusals["queue-full"] += 1
            seconds = self._seconds_to_empty()
            raise OverloadedError(
                f"the queue is full, {len(self._queue)} jobs wait; try again in {seconds} s",
                seconds,
            )

    def _seconds_to_empty(self) -> int:
        """How long the queue needs at the recent pace; whole seconds, at least one."""
        workers = max(1, len(self._running) - len(self._in_hands))
        return max(1, math.ceil(len(self._queue) * self._mean_seconds / workers))

    # -- From the queue to a worker and back ------------------------------------------------

    def _hand_out(self, job: Job, *, first: bool = False) -> None:
        """To a worker if one is idle, else into the queue."""
        if self._idle:
            # The same few again and again, whose caches are warm; the last one shares its
            # core with the event loop.
            lowest = min(self._idle, key=lambda place: place.number)
            self._idle.remove(lowest)
            self._start(job, lowest)
            return
        self._queue[job.number] = job
        self.queue_bytes += len(job.body)
        if first:
            self._queue.move_to_end(job.number, last=False)

    def _start(self, job: Job, place: Place) -> None:
        job.started = self._loop.time()
        job.attempts += 1
        self._running[job] = place
        place.work_on(job)

    def _offer(self, place: Place) -> None:
        """One more job for a busy worker's hand, if enough are left for the others."""
        if len(self._queue) < self._settings.workers or not place.has_free_hand:
            return
        job = next(iter(self._queue.values()))
        if len(job.body) <= _HANDY_BYTES:
            self._pop_queue()
            job.handed_over = self._loop.time()
            self._running[job], self._in_hands[job] = place, None
            place.hand_over(job)

    def _stuck_job(self) -> Job | None:
        """One that its worker should have come to by now; that one forgets it."""
        latest = self._loop.time() - self._longest_wait
        for job in self._in_hands:  # in the order in which they were handed over
            if job.handed_over <= latest and not job.answer.done():
                self._running.pop(job).forget()
                del self._in_hands[job]
                return job
        return None

    @property
    def _longest_wait(self) -> float:
        """How long a job may be in a worker's hand."""
        return max(_STUCK_JOBS * self._mean_seconds, _STUCK_SECONDS)

    def _help_later(self) -> None:
        """See to stuck jobs after a while, when there is nothing else to be done."""
        if self._in_hands and self._helper is None:
            self._helper = self._loop.call_later(self._longest_wait, self._help)

    def _help(self) -> None:
        self._helper = None
        while self._idle and (job := self._stuck_job()) is not None:
            self._hand_out(job)
        if self._idle:
            self._help_later()

    def _pop_queue(self) -> Job:
        _, job = self._queue.popitem(last=False)
        self.queue_bytes -= len(job.body)
        return job

    def _take_out(self, job: Job) -> bool:
        """Out of the queue; whether it was there."""
        if self._queue.pop(job.number, None) is None:
            return False
        self.queue_bytes -= len(job.body)
        job.cancel_timer()
        return True

    def _abandon(self, job: Job) -> None:
        """Nobody waits for it any more: drop it if it is queued, else let it end."""
        if self._take_out(job):
            self.refusals["client-gone"] += 1
            self._note_progress()

    def _on_deadline(self, job: Job) -> None:
        started = not self._take_out(job) and job not in self._in_hands
        if not job.answer.done():
            self.refusals["deadline"] += 1
            seconds = self._loop.time() - job.accepted
            where = "a worker was at it" if started else "it was still queued"
            job.fail(DeadlineError(f"there was no answer after {seconds:.3g} s, {where}"))
        if started:
            self._limit(job)
        self._note_progress()

    def _limit(self, job: Job) -> None:
        """Replace the worker that runs `job` once it has run for as long as any job may.

        Not before: a client with little patience, or a job that waited long, says
        nothing against the worker.
        """
        longest = self._settings.deadline_seconds
        remaining = job.started + longest - self._loop.time()
        if remaining > _TIMER_SLACK_SECONDS:
            job.timer = self._loop.call_later(remaining, self._limit, job)
        elif job in self._running:
            self._running[job].kill(f"a job ran for {longest} s, the longest allowed")

    def _note_progress(self) -> None:
        waiting = (*self._queue.values(), *self._running) if not self.accepting else ()
        if not self.accepting and all(job.answer.done() for job in waiting):
            self.drained.set()

    # -- What places tell ------------------------------------------------------------------

    def on_idle(self, place: Place) -> None:
        """Give it the job that waits longest."""
        job = self._stuck_job() or (self._pop_queue() if self._queue else None)
        if job is None:
            self._idle.append(place)
            self._help_later()
            return
        self._start(job, place)
        self._offer(place)

    def on_next(self, place: Place, job: Job) -> None:
        """Its time runs from now on."""
        del self._in_hands[job]
        job.started = self._loop.time()
        job.attempts += 1
        if job.deadline <= job.started:
            self._limit(job)
        self._offer(place)

    def on_unusable(self, place: Place) -> None:
        """Give it no more jobs."""
        if place in self._idle:
            self._idle.remove(place)

    def on_answer(self, job: Job, frame: Frame) -> None:
        """Hand the answer on, unless nobody waits for it."""
        del self._running[job]
        job.cancel_timer()
        if not job.answer.done():
            job.answer.set_result(frame)
        weight = _MEAN_WEIGHT if self._mean_seconds else 1.0
        self._mean_seconds += weight * (self._loop.time() - job.started - self._mean_seconds)
        self._note_progress()

    def on_lost(self, job: Job) -> None:
        """Try once more, before all others; then give up."""
        del self._running[job]
        if not job.answer.done() and job.attempts < _MOST_ATTEMPTS:
            self._hand_out(job, first=True)
            return
        job.cancel_timer()
        if not job.answer.done():
            self.refusals["worker-lost"] += 1
            job.fail(WorkerLostError(f"{job.attempts} workers went away while at it"))
        self._note_progress()

    def on_returned(self, job: Job) -> None:
        """As if it had never left the queue."""
        del self._running[job], self._in_hands[job]
        if job.answer.done():
            job.cancel_timer()
        else:
            self._hand_out(job, first=True)
        self._note_progress()


def _outcome(job: Job, frame: Frame) -> Outcome[Frame]:
    if frame.kind is not Kind.DONE:
        raise frames.failure(frame)
    seconds, stages = frame.fields["seconds"], frame.fields["stages"]
    return Outcome(frame, Timings(job.started - job.accepted, seconds, stages))


def _settled(job: Job, answer: Frame | BaseException) -> Outcome[Frame] | LeafcodeError:
    try:
        if isinstance(answer, BaseException):
            raise answer
        return _outcome(job, answer)
    except LeafcodeError as error:
        return error
