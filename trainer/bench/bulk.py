"""`predict` beside bare engines on the same cores, over the same images.

Bare engines are loaded and have the images in memory. The command is timed as a whole: it starts
Python, loads the engine, lists and reads the files, and writes the table. CPU time is compared,
too, because a busy machine is not the same for two turns of a minute each.
"""

import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from pydantic import Field

from trainer.bench.engine_processes import EngineProcess, engine_processes
from trainer.bench.machine import describe_machine, pinned, separate_cores
from trainer.bench.spread import Spread
from trainer.data.image_files import find_images
from trainer.errors import MeasurementError
from trainer.settings import Settings

__all__ = ["BulkResult", "BulkSettings", "measure_bulk"]

logger = logging.getLogger(__name__)


class BulkSettings(Settings):
    """How often, and on how many cores."""

    rounds: int = Field(5, ge=1, description="turns of predict, each between two of the engines")
    processes: int = Field(2, ge=1, description="processes, each on a core")


@dataclass(frozen=True)
class BulkResult:
    """What was measured, turn by turn; there is one turn more of the engines than of predict."""

    images: int
    processes: int
    engines: tuple["Turn", ...]
    predict: tuple["Turn", ...]

    @property
    def ratio(self) -> Spread:
        """Images a second of predict by the mean of the engines just before and just after it."""
        around = [(before.rate + after.rate) / 2 for before, after in pairwise(self.engines)]
        pairs = zip(self.predict, around, strict=True)
        return Spread.of(turn.rate / mean for turn, mean in pairs)

    @property
    def cpu_ratio(self) -> Spread:
        """CPU time of the engines, the mean before and after, by that of predict."""
        around = [(before.cpu + after.cpu) / 2 for before, after in pairwise(self.engines)]
        return Spread.of(mean / turn.cpu for turn, mean in zip(self.predict, around, strict=True))

    def to_json(self) -> dict[str, object]:
        """All of it as plain JSON values."""
        return {
            "predict_vs_engine": self.ratio.median,
            "spread": asdict(self.ratio),
            "cpu_spread": asdict(self.cpu_ratio),
            "turns": asdict(self),
            "machine": describe_machine(),
        }

    def to_text(self) -> str:
        """The same for people."""
        return "\n".join(
            [
                f"{self.images} images, {self.processes} processes",
                _line("images a second, predict / bare engines", self.ratio),
                _line("CPU time, bare engines / predict", self.cpu_ratio),
                _line("images a second, predict", Spread.of(t.rate for t in self.predict)),
                _line("images a second, bare engines", Spread.of(t.rate for t in self.engines)),
                _line("CPU ms an image, predict", self._milliseconds(self.predict)),
                _line("CPU ms an image, bare engines", self._milliseconds(self.engines)),
            ]
        )

    def _milliseconds(self, turns: Sequence["Turn"]) -> Spread:
        return Spread.of(1e3 * turn.cpu / self.images for turn in turns)


@dataclass(frozen=True)
class Turn:
    """Images a second of elapsed time, and CPU seconds of all processes."""

    rate: float
    cpu: float


def _line(title: str, found: Spread) -> str:
    return f"  {title}: {found.median:.3g} ({found.lowest:.3g} to {found.highest:.3g})"


def measure_bulk(bundle: Path, folder: Path, settings: BulkSettings) -> BulkResult:
    """Both in turns, over all images below a folder."""
    cores = separate_cores(settings.processes)
    images = [path.read_bytes() for path in find_images(folder).images]
    if len(images) < len(cores):
        raise MeasurementError(f"{folder} has {len(images)} images, expected {len(cores)} at least")
    shares = [images[number :: len(cores)] for number in range(len(cores))]
    turns: list[Turn] = []
    with engine_processes(bundle, shares, cores) as engines:
        bare = [_engines_turn(engines, shares)]
        for _ in range(settings.rounds):
            turns.append(_predict_turn(bundle, folder, cores))
            bare.append(_engines_turn(engines, shares))
    return BulkResult(len(images), len(cores), tuple(bare), tuple(turns))


def _engines_turn(engines: Sequence[EngineProcess], shares: Sequence[Sequence[bytes]]) -> Turn:
    """The sum of what each does a second, so that none waits for a slower one."""
    before = sum(map(_cpu_seconds, engines))
    for engine in engines:
        engine.start()
    times = [engine.finished() for engine in engines]
    cpu = sum(map(_cpu_seconds, engines)) - before
    pairs = zip(shares, times, strict=True)
    rate = sum(len(share) / (ended - began) for share, (began, ended) in pairs)
    logger.info("engines: %.1f a second, %.1f CPU s", rate, cpu)
    return Turn(rate, cpu)


def _cpu_seconds(engine: EngineProcess) -> float:
    """CPU time of a process that runs, by Linux."""
    fields = Path(f"/proc/{engine.process.pid}/stat").read_text().rpartition(")")[2].split()
    user, system = map(int, fields[11:13])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def _predict_turn(bundle: Path, folder: Path, cores: Sequence[int]) -> Turn:
    """The whole command, as a person types it."""
    with tempfile.TemporaryDirectory(prefix="leafcode-") as scratch, pinned(cores):
        out = Path(scratch) / "labels.parquet"
        command = ["-m", "trainer", "predict", str(bundle), str(folder), "--out", str(out)]
        before, started = _children_cpu_seconds(), time.perf_counter()
        done = subprocess.run(  # noqa: S603
            [sys.executable, *command, "--json"], capture_output=True, text=True, check=False
        )
        elapsed, cpu = time.perf_counter() - started, _children_cpu_seconds() - before
    if done.returncode:
        raise MeasurementError(f"predict failed: {done.stderr.strip()}")
    summary = json.loads(done.stdout)
    if summary["unreadable"]:
        raise MeasurementError(f"{summary['unreadable']} images of {folder} cannot be read")
    rate = summary["images"] / elapsed
    logger.info("predict: %.1f a second, %.1f CPU s", rate, cpu)
    return Turn(rate, cpu)


def _children_cpu_seconds() -> float:
    """CPU time of all processes below this one that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
