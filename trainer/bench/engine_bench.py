"""All that a measurement needs: inputs, models, cores, and how patient to be."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from service.engine.arrays import Float32Array
from trainer.bench.machine import one_thread_each, pinned, separate_cores
from trainer.bench.models import Models, draw_descriptors
from trainer.bench.photographs import Photographs, find_photographs
from trainer.bench.settings import SpeedSettings
from trainer.bench.stopwatch import Clock, Patience, side_by_side

__all__ = ["EngineBench", "average", "each_of", "set_up_engine_bench"]

Workloads = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class EngineBench:
    """Photographs, models, and descriptors (n, 128) of photographs that no model has seen.

    The descriptors are drawn at random over all those photographs: the worst case for a
    tree, whose walk is faster for neighbours in an image because they take similar paths.
    """

    settings: SpeedSettings
    photographs: Photographs
    models: Models
    vectors: Float32Array

    @property
    def patience(self) -> Patience:
        """As the settings say."""
        seconds = self.settings.milliseconds / 1000
        return Patience(self.settings.rounds, seconds, turn=seconds / 30)

    @property
    def images(self) -> list[bytes]:
        """Encoded photographs that are classified one after the other."""
        chosen = self.photographs.measured[: self.settings.photographs]
        return [path.read_bytes() for path in chosen]

    def compare(self, workloads: Workloads) -> dict[str, float]:
        """Best seconds of CPU of each workload, all pinned to the same core.

        On a quiet machine that is the time on the wall. On a busy one no call of a third
        of a second runs undisturbed while many of a millisecond do, and the wall's ratio
        of the two was up to 1.4 times as large. Threads of a library would count as well.
        """
        return self._compare(workloads, 1, time.process_time)

    def compare_on_the_wall(self, workloads: Workloads, cores: int = 1) -> dict[str, float]:
        """Best seconds on the wall, all pinned to the same core or cores."""
        return self._compare(workloads, cores, time.perf_counter)

    def _compare(self, workloads: Workloads, cores: int, clock: Clock) -> dict[str, float]:
        # Two cores are undisturbed at the same time less often than one.
        patience = replace(self.patience, rounds=self.patience.rounds * (2 * cores - 1))
        with pinned(separate_cores(cores)), one_thread_each():
            return side_by_side(workloads, patience, clock)


def set_up_engine_bench(
    data: Path, models: Path, scratch: Path, settings: SpeedSettings
) -> EngineBench:
    """A workbench over the images below `data`; bundles are kept in the folder `models`."""
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
    """One workload for every image."""

    def workload(data: bytes) -> Callable[[], object]:
        return lambda: function(data)

    return {f"{name} {number}": workload(data) for number, data in enumerate(images)}


def average(name: str, best: Mapping[str, float]) -> float:
    """Mean seconds of the workloads that `each_of` made under this name."""
    times = [seconds for key, seconds in best.items() if key.rpartition(" ")[0] == name]
    return sum(times) / len(times)
