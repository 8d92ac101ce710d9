"""All that measuring the engine needs: inputs, models, cores, and how long to measure."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from service.engine.arrays import Float32Array
from trainer.bench.machine import one_thread_each, pinned, separate_cores
from trainer.bench.models import Models, draw_descriptors
from trainer.bench.photographs import Photographs, find_photographs
from trainer.bench.settings import BenchSettings
from trainer.bench.stopwatch import Clock, Duration, Timings, side_by_side

__all__ = ["EngineBench", "each_of", "in_turns", "set_up_engine_bench"]

Workloads = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class EngineBench:
    """Photographs, models, and descriptors (n, 128) of photographs that no model has seen.

    The descriptors are drawn at random over all those photographs: the worst case for a
    tree, whose walk is faster for neighbours in an image because they take similar paths.
    """

    settings: BenchSettings
    photographs: Photographs
    models: Models
    vectors: Float32Array

    @property
    def duration(self) -> Duration:
        """How long a comparison takes."""
        seconds = self.settings.milliseconds / 1000
        return Duration(self.settings.rounds, seconds, turn=seconds / 30)

    @property
    def images(self) -> list[bytes]:
        """Encoded photographs that are classified one after the other."""
        chosen = self.photographs.measured[: self.settings.photographs]
        return [path.read_bytes() for path in chosen]

    def compare(self, workloads: Workloads) -> Timings:
        """Time the workloads in CPU seconds, all pinned to the same core.

        On a quiet machine that is the elapsed time. On a busy one no call of a third
        of a second runs undisturbed while many of a millisecond do, and the ratio
        of elapsed times was up to 1.4 times as large. Threads of a library would count as well.
        """
        return self._compare(workloads, 1, time.process_time, self.duration)

    def compare_elapsed(self, workloads: Workloads, cores: int = 1) -> Timings:
        """Time the workloads in elapsed seconds, all pinned to the same core or cores.

        With more rounds, because whatever else the machine does counts: the median of seven was
        up to 10 % off that of several runs.
        """
        usual = self.duration
        longer = replace(usual, rounds=3 * usual.rounds, seconds=3 * usual.seconds)
        return self._compare(workloads, cores, time.perf_counter, longer)

    def _compare(
        self, workloads: Workloads, cores: int, clock: Clock, duration: Duration
    ) -> Timings:
        with pinned(separate_cores(cores)), one_thread_each():
            return side_by_side(workloads, duration, clock)


def set_up_engine_bench(
    data: Path, models: Path, scratch: Path, settings: BenchSettings
) -> EngineBench:
    """Find the images below `data`; bundles are built when needed and kept in `models`."""
    photographs = find_photographs(data, scratch, settings)
    return EngineBench(
        settings,
        photographs,
        Models(models, photographs.training, settings),
        draw_descriptors(photographs.measured, settings.vectors, settings.seed),
    )


def each_of(
    name: str, function: Callable[[bytes], object], images: list[bytes]
) -> dict[str, Callable[[], object]]:
    """Return one workload for every image, called `<name> <number>`."""

    def workload(data: bytes) -> Callable[[], object]:
        return lambda: function(data)

    return {f"{name} {number}": workload(data) for number, data in enumerate(images)}


def in_turns(
    functions: Mapping[str, Callable[[bytes], object]], images: list[bytes]
) -> dict[str, Callable[[], object]]:
    """The workloads of `each_of` for several functions, image by image.

    What is compared runs one just after the other: a neighbour that comes or goes meanwhile
    disturbs one image, not all of one side.
    """
    sides = [list(each_of(name, run, images).items()) for name, run in functions.items()]
    return {name: run for own in zip(*sides, strict=True) for name, run in own}
