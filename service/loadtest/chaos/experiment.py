"""One fault injected into one service under load, and what is said about it.

The service is measured, the fault happens while requests go on, the service is measured again.
Every request has to be answered with the right labels, or with an answer that the fault allows;
afterwards all workers have to be there, and the service as fast as before.
"""

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path

from service.loadtest.answers import (
    AnswerCounts,
    LabelledImages,
    add_counts,
    count_answers,
    default_bundle,
)
from service.loadtest.chaos.fault import Fault, NotPossibleError
from service.loadtest.errors import LoadTestError
from service.loadtest.generator import Generator
from service.loadtest.processes import ServiceProcess

__all__ = ["ExperimentSettings", "FaultResult", "inject"]

# The service answers by its deadline; one that has not so much later hangs.
_GRACE_SECONDS = 7.0
_RECOVERY_SECONDS = 30.0
_POLL_SECONDS = 0.05
_MEASUREMENTS = 5
_LEAST_SPEED = 0.8


@dataclass(frozen=True)
class ExperimentSettings:
    """How much load there is, and for how long the speed is measured."""

    clients: int = 8
    measure_seconds: float = 2.0


@dataclass(frozen=True)
class FaultResult:
    """What became of the requests, the images a second before and after, and what was wrong."""

    name: str
    answers: AnswerCounts = field(default_factory=AnswerCounts)
    before: float = 0.0
    after: float | None = None
    seconds: float = 0.0
    faults: tuple[str, ...] = ()
    impossible: str = ""
    """Why the fault could not be injected; empty if it was."""


def inject(fault: Fault, models: Path, settings: ExperimentSettings) -> FaultResult:
    """Run one experiment with a service of its own."""
    images, start = LabelledImages.of(default_bundle(models)), time.monotonic()
    flags = (f"--deadline-seconds={fault.deadline_seconds}", f"--workers={_workers()}")
    try:
        with fault.prepared(models) as around:
            start_service = partial(ServiceProcess, environment=around.environment)
            with start_service(around.models, *flags, log=around.log) as service:
                untouched = partial(start_service, models, *flags)
                result = _Experiment(fault, service, images, settings, untouched).run()
    except NotPossibleError as error:
        return FaultResult(fault.name, impossible=str(error))
    except LoadTestError as error:  # the service did not start
        return FaultResult(fault.name, faults=(str(error),))
    return FaultResult(**{**vars(result), "seconds": time.monotonic() - start})


def _workers() -> int:
    """One for each core, but at least two, so that one is left when another one is lost."""
    return max(2, len(os.sched_getaffinity(0)))


class _Experiment:
    """The course of one experiment."""

    def __init__(
        self,
        fault: Fault,
        service: ServiceProcess,
        images: LabelledImages,
        settings: ExperimentSettings,
        untouched: Callable[[], ServiceProcess],
    ) -> None:
        self._fault = fault
        self._service = service
        self._images = images
        self._settings = settings
        self._untouched = untouched
        self._requests = images.requests(len(images.images), service.target)
        self._counts: list[AnswerCounts] = []
        self._faults: list[str] = []

    def run(self) -> FaultResult:
        """Measure, inject, measure, judge."""
        self._measure()  # the first answers take longer
        before = self._measure()
        during = self._inject()
        after = None
        if not self._fault.is_last:
            before, after = self._recover(before)
        self._faults += self._fault.faults(self._service)
        self._faults += self._left_behind()
        self._faults += during.faults(self._fault.allowed)
        self._faults += [f"without the fault, {item}" for item in add_counts(self._counts).faults()]
        return FaultResult(self._fault.name, during, before, after, faults=tuple(self._faults))

    def _recover(self, before: float) -> tuple[float, float]:
        """Images a second without the fault, and afterwards, once all workers are back."""
        try:
            self._service.wait_for_workers()
        except LoadTestError as error:
            self._faults.append(str(error))
        after = self._measure()
        if after < _LEAST_SPEED * before:
            before, after = self._compare()
        if after < _LEAST_SPEED * before:
            self._faults.append(f"{after:.0f} images a second, {before:.0f} without the fault")
        return before, after

    def _compare(self) -> tuple[float, float]:
        """The same beside a service that saw no fault: the machine may have become slower."""
        with self._untouched() as other:
            self._measure(other)
            for _ in range(_MEASUREMENTS):
                before, after = self._measure(other), self._measure()
                if after >= _LEAST_SPEED * before:
                    break
        return before, after

    def _inject(self) -> AnswerCounts:
        """The answers while the fault lasts."""
        failed: list[Exception] = []
        thread = threading.Thread(target=self._happen, args=(failed.append,), name="fault")
        thread.start()
        timeout = self._fault.deadline_seconds + _GRACE_SECONDS
        generator = Generator(self._service.target.address, timeout, keep_bodies=True)
        load = generator.closed_loop(self._endless(), self._settings.clients)
        thread.join()
        for error in failed:
            if isinstance(error, NotPossibleError):
                raise error
            self._faults.append(str(error))
        return count_answers(load, self._images.labels)

    def _happen(self, on_error: Callable[[Exception], None]) -> None:
        try:
            self._fault.happen(self._service)
        except (OSError, IndexError, http.client.HTTPException, LoadTestError) as error:
            on_error(error)
        finally:
            self._fault.over.set()

    def _endless(self) -> Iterator[bytes]:
        """Requests until the fault is over; a last one right behind SIGTERM, if that is it.

        This runs when a client has its answer: its open connection takes the next request.
        """
        for request in cycle(self._requests):
            if self._fault.over.is_set():
                break
            yield request
        if self._fault.is_last:
            self._service.process.terminate()
            yield request

    def _measure(self, service: ServiceProcess | None = None) -> float:
        """Images a second without a fault."""
        generator = Generator((service or self._service).target.address, keep_bodies=True)
        load = generator.closed_loop(
            cycle(self._requests), self._settings.clients, self._settings.measure_seconds
        )
        self._counts.append(count_answers(load, self._images.labels))
        return load.rate()

    def _left_behind(self) -> list[str]:
        """Processes that are there without need, as a worker that nobody could end."""
        service = self._service
        wanted = 0 if self._fault.is_last else 2 + _workers()
        end = time.monotonic() + _RECOVERY_SECONDS
        while len(service.processes) > wanted and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        surplus = len(service.processes) - wanted
        return [f"{surplus} processes were left behind"] if surplus > 0 else []
