"""Throughput of one process on one core, and of two on two.

Real processes, each pinned to its core with an engine of its own, as the service's
workers are. They wait for a command, classify the same images, and say when they began
and ended; the clock is the same for all processes of a machine.
"""

import gc
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from service.engine import Engine
from trainer.bench.machine import one_thread_each
from trainer.errors import TrainingError

__all__ = ["EngineProcess", "Throughput", "engine_processes", "measure_throughput"]

_ALL = slice(None)
_WARM_UP_IMAGES = 50


@dataclass(frozen=True)
class Throughput:
    """Images a second, round by round: one process alone, and all together just after."""

    alone: tuple[float, ...]
    together: tuple[float, ...]


@dataclass(frozen=True)
class EngineProcess:
    """One process with an engine, pinned to its core."""

    process: BaseProcess
    connection: Connection

    def start(self, passes: int = 1, part: slice = _ALL) -> None:
        """Have it classify its images, or a part of them, so many times."""
        self.connection.send((passes, part))

    def finished(self) -> tuple[float, float]:
        """Wait for the end of what was started; return when it began and ended."""
        try:
            began, ended = self.connection.recv()
        except EOFError as error:
            raise TrainingError("a process that was measured ended early") from error
        return began, ended


def measure_throughput(
    bundle: Path, images: Sequence[bytes], cores: Sequence[int], rounds: int, seconds: float
) -> Throughput:
    """Measure one process and `len(cores)` processes in turns, about `seconds` each time."""
    with engine_processes(bundle, [images] * len(cores), cores) as workers:
        one_pass = 1 / _images_per_second(workers[:1], 1, 1)
        passes = max(1, round(seconds / one_pass))
        alone, together = [], []
        for _ in range(rounds):
            alone.append(_images_per_second(workers[:1], passes, len(images)))
            together.append(_images_per_second(workers, passes, len(images)))
    return Throughput(tuple(alone), tuple(together))


def _images_per_second(workers: Sequence[EngineProcess], passes: int, n_images: int) -> float:
    for worker in workers:
        worker.start(passes)
    times = [worker.finished() for worker in workers]
    duration = max(ended for _, ended in times) - min(began for began, _ in times)
    return len(workers) * passes * n_images / duration


@contextmanager
def engine_processes(
    bundle: Path, shares: Sequence[Sequence[bytes]], cores: Sequence[int]
) -> Iterator[list[EngineProcess]]:
    """Start a warm process on each core, with its own share of the images."""
    context = multiprocessing.get_context("spawn")
    workers = []
    try:
        for core, images in zip(cores, shares, strict=True):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(theirs, bundle, images, core), daemon=True
            )
            process.start()
            theirs.close()
            workers.append(EngineProcess(process, ours))
        for worker in workers:
            worker.finished()  # it is warm
        yield workers
    finally:
        for worker in workers:
            worker.connection.close()  # which ends it
            worker.process.join()


def _work(connection: Connection, bundle: Path, images: Sequence[bytes], core: int) -> None:
    os.sched_setaffinity(0, {core})
    engine = Engine.load(bundle)
    gc.disable()
    passes, part = 1, slice(_WARM_UP_IMAGES)
    with one_thread_each():
        while True:
            chosen, began = images[part], time.perf_counter()
            for _ in range(passes):
                for data in chosen:
                    engine.classify(data)
            connection.send((began, time.perf_counter()))
            try:
                passes, part = connection.recv()
            except EOFError:
                return
