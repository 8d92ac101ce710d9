"""The pool: pinned worker processes, and the operations that they know.

Routes call the operations; only bytes, arrays and plain values cross to the workers. A
worker that dies costs no request: its job is tried once more elsewhere and the worker is
replaced. The standard `ProcessPoolExecutor` was tried: one killed worker failed 11 of
16 innocent requests and broke the pool for good.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np

from service.engine import BundleError, Codes, LeafcodeError
from service.engine.arrays import Float32Array
from service.errors import WorkerLostError
from service.formats.codes import CodeForms
from service.formats.v2.requests import BatchLimits
from service.pool.cores import allowed_cores, deal, usable_cores
from service.pool.dispatcher import Dispatcher
from service.pool.fork_client import Starter
from service.pool.frames import Fields, Frame, Kind
from service.pool.job import Outcome, PoolState
from service.pool.trial import prove
from service.pool.worker import Plan
from service.pool.worker_slot import Place, Stock
from service.repository import Model, ModelKey
from service.settings import Settings

__all__ = ["Pool"]

logger = logging.getLogger(__name__)

_PING_SECONDS = 1.0


class Pool:
    """Workers and their queue; made inside a running event loop.

    An operation raises `NotReadyError`, `OverloadedError`, `DeadlineError` or
    `WorkerLostError`, or what the engine raises. Its `patience` in seconds counts from the
    call and never extends `Settings.deadline_seconds`.
    """

    def __init__(self, settings: Settings, models: Mapping[ModelKey, Model]) -> None:
        self._settings = settings
        self._models = dict(models)
        self._retiring: dict[ModelKey, Model] = {}
        # One worker at a time is away to load, the others serve.
        self._turn = asyncio.Lock()
        self._dispatcher = Dispatcher(settings)
        self._starter = Starter(settings)
        self._places: list[Place] = []
        self._tasks: list[asyncio.Task[None]] = []
        # Looked up once: the event loop keeps to some of them later.
        self._cores, self._allowed = usable_cores(), allowed_cores()
        self._heartbeat: asyncio.TimerHandle | None = None

    @property
    def accepting(self) -> bool:
        """Whether work is accepted: started, and not draining."""
        return self._dispatcher.accepting

    @property
    def would_wait(self) -> bool:
        """Whether new work would have to queue."""
        return self._dispatcher.would_wait

    @property
    def front_cores(self) -> tuple[int, ...]:
        """Where the event loop is in nobody's way, else only in that of the last worker."""
        taken = [core for plan in self._plans() for core in plan.cores]
        return tuple(core for core in self._allowed if core not in taken) or (taken[-1],)

    def check_room(self) -> None:
        """Raise what refuses a job at once, before its body is read."""
        self._dispatcher.check_room()

    def state(self) -> PoolState:
        """What probes and metrics need to know."""
        return PoolState(
            accepting=self._dispatcher.accepting,
            queue_depth=self._dispatcher.queue_depth,
            queue_bytes=self._dispatcher.queue_bytes,
            workers=tuple(place.state for place in self._places),
            refusals=dict(self._dispatcher.refusals),
        )

    async def start(self) -> None:
        """Every worker ready; raises the `LeafcodeError` of one that cannot be."""
        try:
            await self._starter.start()
            self._places = [
                Place(plan, self._starter, self._dispatcher, self._stock) for plan in self._plans()
            ]
            self._tasks = [asyncio.create_task(place.keep_occupied()) for place in self._places]
            await asyncio.gather(*(place.first_start for place in self._places))
        except BaseException:
            await self.stop()
            raise
        self._ping()
        self._dispatcher.accepting = True

    def drain(self) -> None:
        """Refuse new work from now on, and finish what was accepted."""
        self._dispatcher.drain()

    async def stop(self) -> None:
        """Drain, but no longer than the settings allow; then end all processes."""
        self.drain()
        with contextlib.suppress(TimeoutError):
            limit = self._settings.shutdown_seconds
            await asyncio.wait_for(self._dispatcher.drained.wait(), limit)
        self._dispatcher.give_up()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        for task in self._tasks:
            task.cancel()
        starts = (place.first_start for place in self._places)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(start for start in starts if start.done()), return_exceptions=True)
        await self._starter.stop()

    async def load(self, key: ModelKey, model: Model) -> None:
        """Have a further version in every worker that takes jobs, now and later.

        A process that serves nobody proves it first. Raises `BundleError` if it is not
        sound, `WorkerLostError` if a worker did not survive it; no worker keeps it then.
        """
        async with self._turn:
            await prove(self._starter, self._trial_plan(), _load_fields(key, model))
            self._models[key] = model
            try:
                for place in self._places:
                    await place.catch_up()
            except Exception:
                del self._models[key]
                await self._shed()
                raise

    def retire(self, key: ModelKey) -> None:
        """Load a version no more; workers that have it still answer for it."""
        self._retiring[key] = self._models.pop(key)

    async def unload(self, key: ModelKey) -> None:
        """Drop a retired version and its mapping, when no request needs it any more."""
        async with self._turn:
            del self._retiring[key]
            await self._shed()

    async def _shed(self) -> None:
        for place in self._places:
            # One that is lost here has lost the version too.
            with contextlib.suppress(WorkerLostError, BundleError):
                await place.catch_up()

    async def classify(
        self, model: ModelKey, data: bytes, top_k: int, patience: float | None = None
    ) -> Outcome[bytes]:
        """Encoded image -> JSON of the `top_k` best labels, best first."""
        fields = _fields(model, top_k=top_k)
        return _written(await self._dispatcher.run(Kind.CLASSIFY, fields, data, patience))

    async def classify_many(
        self, model: ModelKey, images: Sequence[bytes], top_k: int, patience: float | None = None
    ) -> list[Outcome[bytes] | LeafcodeError]:
        """Images spread over the workers: accepted as one, answered or refused one by one."""
        fields = _fields(model, top_k=top_k)
        outcomes = await self._dispatcher.run_many(Kind.CLASSIFY, fields, images, patience)
        return [item if isinstance(item, LeafcodeError) else _written(item) for item in outcomes]

    async def scores(
        self, model: ModelKey, data: bytes, patience: float | None = None
    ) -> Outcome[Float32Array]:
        """Encoded image -> raw scores (n_labels,), in the order of the manifest's labels."""
        return _scored(await self._dispatcher.run(Kind.SCORES, _fields(model), data, patience))

    async def scores_many(
        self, model: ModelKey, images: Sequence[bytes], patience: float | None = None
    ) -> list[Outcome[Float32Array] | LeafcodeError]:
        """Images spread over the workers -> raw scores of each, or why it has none."""
        fields = _fields(model)
        outcomes = await self._dispatcher.run_many(Kind.SCORES, fields, images, patience)
        return [item if isinstance(item, LeafcodeError) else _scored(item) for item in outcomes]

    async def encode(
        self, model: ModelKey, descriptors: Float32Array, patience: float | None = None
    ) -> Outcome[Codes]:
        """Descriptors (n, 128) -> their sparse codes."""
        fields = _fields(model, shape=list(descriptors.shape))
        raw = descriptors.astype(np.float32, copy=False).tobytes()
        done = await self._dispatcher.run(Kind.ENCODE, fields, raw, patience)
        return Outcome(_codes(done.value), done.timings)

    async def pack_json(
        self, body: bytes, limits: BatchLimits, patience: float | None = None
    ) -> Outcome[tuple[int, bytes]]:
        """JSON of the Open Inference Protocol -> the same as a binary request."""
        done = await self._dispatcher.run(Kind.PACK_JSON, asdict(limits), body, patience)
        packed = done.value.fields["header_length"], bytes(done.value.body)
        return Outcome(packed, done.timings)

    async def write_codes(
        self, model: ModelKey, body: bytes, forms: CodeForms, patience: float | None = None
    ) -> Outcome[bytes]:
        """A body in one form -> codes in another, read and written in the worker."""
        fields = _fields(model, source=forms.source, target=forms.target)
        return _written(await self._dispatcher.run(Kind.WRITE_CODES, fields, body, patience))

    def _plans(self) -> list[Plan]:
        settings = self._settings
        shares = deal(self._cores, settings.workers, settings.threads)
        return [
            Plan(number, cores, settings.threads, settings.image_limits, settings.max_descriptors)
            for number, cores in enumerate(shares)
        ]

    def _trial_plan(self) -> Plan:
        """A process beside the workers, on whatever core has time."""
        plans = self._plans()
        cores = tuple(sorted({core for plan in plans for core in plan.cores}))
        return replace(plans[0], number=len(plans), cores=cores)

    def _stock(self) -> Stock:
        """What workers must have, and what they may."""
        wanted, retiring = (
            tuple(_load_fields(key, models[key]) for key in sorted(models))
            for models in (self._models, self._retiring)
        )
        return Stock(wanted, retiring)

    def _ping(self) -> None:
        for place in self._places:
            place.check()
        self._heartbeat = asyncio.get_running_loop().call_later(_PING_SECONDS, self._ping)


def _fields(model: ModelKey, **more: str | int | list[int]) -> Fields:
    return {"name": model.name, "version": model.version, **more}


def _load_fields(key: ModelKey, model: Model) -> Fields:
    return _fields(key, path=str(model.path), digest=model.manifest.digest)


def _written(done: Outcome[Frame]) -> Outcome[bytes]:
    return Outcome(bytes(done.value.body), done.timings)


def _scored(done: Outcome[Frame]) -> Outcome[Float32Array]:
    return Outcome(np.frombuffer(done.value.body, np.float32), done.timings)


def _codes(frame: Frame) -> Codes:
    """Codes out of the columns that a worker sent, one behind the other."""
    n, m = frame.fields["shape"]
    leaf_ids, atom_ids = np.split(np.frombuffer(frame.body, np.int32, n + n * m), [n])
    values = np.frombuffer(frame.body, np.float32, n * m, 4 * (n + n * m))
    return Codes(leaf_ids, atom_ids.reshape(n, m), values.reshape(n, m))
