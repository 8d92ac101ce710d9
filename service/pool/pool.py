"""The pool: worker processes, and the operations that routes call.

Only bytes and plain values cross to the workers. A worker that dies costs no request: its
job is tried once more elsewhere and the worker is replaced. The standard
`ProcessPoolExecutor` was tried: one killed worker failed 11 of 16 innocent requests and
broke the pool for good.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import partial
from typing import Any

from service.engine import BundleError, LeafcodeError
from service.engine.bundle import OpenBundle
from service.errors import WorkerLostError
from service.formats.codes import CodeForms
from service.formats.explanations import Explaining
from service.formats.v2 import answers
from service.formats.v2.answers import Answer, WrittenTensor
from service.formats.v2.requests import RequestedOutput
from service.pool.cores import Placement
from service.pool.dispatcher import Dispatcher
from service.pool.fork_client import ForkClient
from service.pool.fork_server_process import ForkServerProcess
from service.pool.frames import Fields, Frame, Kind
from service.pool.job import Outcome
from service.pool.state import PoolState
from service.pool.worker_plan import WorkerPlan, WorkLimits
from service.pool.worker_process import WorkerProcess
from service.pool.worker_slot import Versions, WorkerSlot
from service.repository import Model, ModelKey
from service.settings import Settings

__all__ = ["Pool"]

logger = logging.getLogger(__name__)

_PING_SECONDS = 1.0

Timeout = float | None


class Pool:
    """Workers and their queue; made inside a running event loop.

    An operation raises `NotReadyError`, `OverloadedError`, `DeadlineError` or
    `WorkerLostError`, or what the engine raises. Its `timeout` in seconds counts from the
    call and never extends `Settings.deadline_seconds`. A `fork_server` that was started ahead
    is used first. Workers are those of the settings, or of `placement`.
    """

    def __init__(
        self,
        settings: Settings,
        models: Mapping[ModelKey, Model],
        log_config: Mapping[str, Any] | None = None,
        fork_server: ForkServerProcess | None = None,
        placement: Placement | None = None,
    ) -> None:
        self._settings = settings
        self._first_models = dict(models)
        self._wanted: dict[ModelKey, _LoadedVersion] = {}
        self._retiring: dict[ModelKey, _LoadedVersion] = {}
        self.on_damaged: Callable[[ModelKey, BundleError], None] = lambda *_: None
        """Told when a version, in service until now, cannot be loaded by another worker."""
        # One worker at a time leaves service to load, the others serve.
        self._loading = asyncio.Lock()
        self._placement = placement or Placement.of(
            settings.workers, settings.threads, settings.pin
        )
        self._dispatcher = Dispatcher(settings, len(self._placement.workers))
        self._forks = ForkClient(settings.threads, log_config, fork_server)
        self._slots: list[WorkerSlot] = []
        self._tasks: list[asyncio.Task[None]] = []
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
    def front_end_cores(self) -> tuple[int, ...]:
        """Where the event loop disturbs no worker, or else only the last one."""
        return self._placement.front_end

    def check_room(self) -> None:
        """Raise what rejects a job at once, before its body is read."""
        self._dispatcher.check_room()

    def state(self) -> PoolState:
        """What probes and metrics need to know."""
        return PoolState(
            accepting=self._dispatcher.accepting,
            queue_depth=self._dispatcher.queue_depth,
            queue_bytes=self._dispatcher.queue_bytes,
            workers=tuple(slot.state for slot in self._slots),
            rejections=dict(self._dispatcher.rejections),
        )

    # -- Start and stop --------------------------------------------------------------------

    async def start(self) -> None:
        """Return when every worker is ready; raises the `LeafcodeError` of one that cannot be."""
        try:
            for key, model in self._first_models.items():
                self._wanted[key] = await _LoadedVersion.open(key, model)
            await self._forks.start()
            start_worker = partial(WorkerProcess.start, self._forks)
            self._slots = [
                WorkerSlot(plan, start_worker, self._dispatcher, self) for plan in self._plans()
            ]
            self._tasks = [asyncio.create_task(slot.supervise()) for slot in self._slots]
            await asyncio.gather(*(slot.first_start for slot in self._slots))
        except BaseException:
            await self.stop()
            raise
        places = ", ".join(dict.fromkeys(slot.state.place for slot in self._slots))
        logger.info("%d workers are ready: %s", len(self._slots), places)
        self._ping()
        self._dispatcher.accepting = True

    def drain(self) -> None:
        """Reject new work from now on, and finish what was accepted."""
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
        starts = (slot.first_start for slot in self._slots)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(start for start in starts if start.done()), return_exceptions=True)
        await self._forks.stop()
        for version in (*self._wanted.values(), *self._retiring.values()):
            version.files.close()

    def _ping(self) -> None:
        for slot in self._slots:
            slot.check()
        self._heartbeat = asyncio.get_running_loop().call_later(_PING_SECONDS, self._ping)

    def _plans(self) -> list[WorkerPlan]:
        return [
            WorkerPlan(number, cores, self._settings.threads, self._limits)
            for number, cores in enumerate(self._placement.workers, self._placement.first_worker)
        ]

    @property
    def _limits(self) -> WorkLimits:
        settings = self._settings
        return WorkLimits(settings.image_limits, settings.max_images, settings.max_descriptors)

    # -- Versions --------------------------------------------------------------------------

    async def load(self, key: ModelKey, model: Model) -> None:
        """Have a further version in every worker that takes jobs, now and later.

        A process that serves nobody proves it first. Raises the `LeafcodeError` that it or a
        worker reports, `WorkerLostError` if one did not survive it, and another exception if
        the machine is in trouble; no worker keeps the version then.
        """
        async with self._loading:
            version = await _LoadedVersion.open(key, model)
            with contextlib.ExitStack() as unless_loaded:
                unless_loaded.callback(version.files.close)
                await self._prove(version)
                await self._load_everywhere(key, version)
                unless_loaded.pop_all()

    def retire(self, key: ModelKey) -> None:
        """Load a version no more; workers that have it still answer for it."""
        self._retiring[key] = self._wanted.pop(key)

    async def unload(self, key: ModelKey) -> None:
        """Drop a retired version, its mapping and its files, when no request needs it any more."""
        async with self._loading:
            version = self._retiring.pop(key)
            await self._unload_unwanted()
            version.files.close()

    async def _prove(self, version: "_LoadedVersion") -> None:
        """Load a version in a process that serves nobody, and end that process.

        A file that is cut short while it is mapped ends a process, and a huge one may be
        more than the memory holds.
        """
        plan = WorkerPlan(
            len(self._slots), self._placement.all_workers, self._settings.threads, self._limits
        )
        worker = await WorkerProcess.start(self._forks, plan, lambda _: None)
        try:
            await worker.load(version.fields)
        except WorkerLostError as error:
            raise WorkerLostError(f"the process that tried to load it was lost: {error}") from error
        finally:
            await worker.end()

    async def _load_everywhere(self, key: ModelKey, version: "_LoadedVersion") -> None:
        self._wanted[key] = version
        try:
            for slot in self._slots:
                await slot.update_versions()
        except Exception:
            del self._wanted[key]
            await self._unload_unwanted()
            raise

    async def _unload_unwanted(self) -> None:
        for slot in self._slots:
            # One that is lost here has lost the version too; the others must not keep it.
            with contextlib.suppress(Exception):
                await slot.update_versions()

    def versions(self) -> Versions:
        """What workers load before they take jobs, and what they may keep."""
        wanted, retiring = (
            tuple(versions[key].fields for key in sorted(versions))
            for versions in (self._wanted, self._retiring)
        )
        return Versions(wanted, retiring)

    def on_load_failed(self, fields: Fields, error: BundleError) -> None:
        """A worker that replaces another one cannot load what that one had: tell `on_damaged`."""
        self.on_damaged(ModelKey(fields["name"], fields["version"]), error)

    # -- Operations ------------------------------------------------------------------------

    async def classify(
        self,
        model: ModelKey,
        image: bytes,
        top_k: int,
        timeout: Timeout = None,  # noqa: ASYNC109
        *,
        explain: bool = False,
    ) -> Outcome[bytes]:
        """JSON of `Predicted`: the `top_k` best labels of an encoded image, best first."""
        fields = _fields(model, top_k=top_k, explain=explain)
        return _body(await self._dispatcher.run(Kind.CLASSIFY, fields, image, timeout))

    async def classify_many(
        self,
        model: ModelKey,
        images: Sequence[bytes],
        top_k: int,
        timeout: Timeout = None,  # noqa: ASYNC109
        *,
        explain: bool = False,
    ) -> list[Outcome[bytes] | LeafcodeError]:
        """The same of several, spread over the workers: accepted together, answered one by one."""
        fields = _fields(model, top_k=top_k, explain=explain)
        outcomes = await self._dispatcher.run_many(Kind.CLASSIFY, fields, images, timeout)
        return [item if isinstance(item, LeafcodeError) else _body(item) for item in outcomes]

    async def explain(
        self,
        model: ModelKey,
        image: bytes,
        wanted: Explaining,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Outcome[bytes]:
        """Where the score of a label comes from, written in the form that is wanted."""
        fields = _fields(model, **asdict(wanted))
        return _body(await self._dispatcher.run(Kind.EXPLAIN, fields, image, timeout))

    async def write_codes(
        self,
        model: ModelKey,
        body: bytes,
        forms: CodeForms,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Outcome[bytes]:
        """Codes in one form of a body in another, read and written in the worker."""
        fields = _fields(model, source=forms.source, target=forms.target)
        return _body(await self._dispatcher.run(Kind.WRITE_CODES, fields, body, timeout))

    async def write_dictionary(self, model: ModelKey) -> Outcome[bytes]:
        """The dictionary of a model as a `.npy` file."""
        return _body(await self._dispatcher.run(Kind.WRITE_DICTIONARY, _fields(model), b"", None))

    async def infer_images(
        self,
        model: ModelKey,
        images: Sequence[bytes],
        outputs: Sequence[RequestedOutput],
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> list[Outcome[list[WrittenTensor]] | LeafcodeError]:
        """The output tensors of each image, or why it has none; spread over the workers."""
        fields = _fields(model, outputs=[astuple(output) for output in outputs])
        outcomes = await self._dispatcher.run_many(Kind.INFER_IMAGE, fields, images, timeout)
        return [item if isinstance(item, LeafcodeError) else _tensors(item) for item in outcomes]

    async def infer_descriptors(
        self,
        model: ModelKey,
        descriptors: bytes,
        outputs: Sequence[RequestedOutput],
        id_: str | None,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Outcome[Answer]:
        """The whole answer to descriptors in little-endian float32, 128 each."""
        fields = _fields(model, outputs=[astuple(output) for output in outputs], id=id_)
        done = await self._dispatcher.run(Kind.INFER_DESCRIPTORS, fields, descriptors, timeout)
        return _answer(done)

    async def infer_json(
        self,
        model: ModelKey,
        body: bytes,
        timeout: Timeout = None,  # noqa: ASYNC109
    ) -> Outcome[Answer]:
        """The whole answer to a request in JSON, which is read in the worker."""
        fields = _fields(model, accepted=time.monotonic())
        return _answer(await self._dispatcher.run(Kind.INFER_JSON, fields, body, timeout))


def _fields(model: ModelKey, **more: object) -> Fields:
    return {"name": model.name, "version": model.version, **more}


@dataclass(frozen=True)
class _LoadedVersion:
    """A version as workers are told of it, and its files, which are held open for them.

    A worker that replaces another one reads the same files, even if they were deleted.
    """

    fields: Fields
    files: OpenBundle

    @classmethod
    async def open(cls, key: ModelKey, model: Model) -> "_LoadedVersion":
        files = await asyncio.to_thread(OpenBundle, model.path)
        return cls(_fields(key, files=files.files.to_json(), digest=model.manifest.digest), files)


def _body(done: Outcome[Frame]) -> Outcome[bytes]:
    return Outcome(bytes(done.value.body), done.timings)


def _tensors(done: Outcome[Frame]) -> Outcome[list[WrittenTensor]]:
    frame = done.value
    return Outcome(answers.unpack(frame.fields["tensors"], frame.body), done.timings)


def _answer(done: Outcome[Frame]) -> Outcome[Answer]:
    frame = done.value
    return Outcome(Answer(bytes(frame.body), frame.fields["header_length"]), done.timings)
