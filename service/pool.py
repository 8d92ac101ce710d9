"""Where the engine's work is done, away from the event loop.

Routes know only the protocol `Pool`, and only plain values cross it: bytes, arrays
and small frozen dataclasses. A pool of processes fits behind it without a change to
any route. `ThreadPool` is the simple one: kernels and decoders run without the GIL.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from service.engine import Codes, Engine, ImageLimits, Prediction
from service.engine.arrays import Float32Array
from service.errors import NotReadyError
from service.repository import ModelKey, Repository

__all__ = ["Pool", "ThreadPool"]

Result = TypeVar("Result")


class Pool(Protocol):
    """Classifies images and encodes descriptors, some at a time."""

    @property
    def ready(self) -> bool:
        """Whether work is accepted."""

    async def start(self) -> None:
        """Get ready."""

    async def stop(self) -> None:
        """Finish what runs, refuse what waits."""

    async def classify(self, model: ModelKey, data: bytes, top_k: int) -> tuple[Prediction, ...]:
        """Encoded image -> the `top_k` best labels, best first."""

    async def encode(self, model: ModelKey, descriptors: Float32Array) -> Codes:
        """Descriptors (n, 128) -> their sparse codes."""


class ThreadPool:
    """A fixed number of threads over engines that are loaded already."""

    def __init__(self, repository: Repository, limits: ImageLimits, threads: int) -> None:
        self._repository = repository
        self._limits = limits
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None

    @property
    def ready(self) -> bool:
        """Whether the threads take work."""
        return self._executor is not None

    async def start(self) -> None:
        """Take work from now on."""
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="engine")

    async def stop(self) -> None:
        """Wait for running work, drop what is queued."""
        executor, self._executor = self._executor, None
        if executor is not None:
            await asyncio.to_thread(executor.shutdown, cancel_futures=True)

    async def classify(self, model: ModelKey, data: bytes, top_k: int) -> tuple[Prediction, ...]:
        """Encoded image -> the `top_k` best labels, best first."""
        return await self._run(partial(self._engine(model).classify, data, top_k, self._limits))

    async def encode(self, model: ModelKey, descriptors: Float32Array) -> Codes:
        """Descriptors (n, 128) -> their sparse codes."""
        return await self._run(partial(self._engine(model).encode, descriptors))

    def _engine(self, model: ModelKey) -> Engine:
        return self._repository.find(model.name, model.version)

    async def _run(self, work: Callable[[], Result]) -> Result:
        if self._executor is None:
            raise NotReadyError("the service is starting or stopping, try again in a moment")
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
