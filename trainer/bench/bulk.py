"""`predict` beside bare engines on the same cores, over the same images.

Bare engines are loaded and have the images in memory. The command is timed as a whole: it starts
Python, loads the engine, lists and reads the files, and writes the table.
"""

import json
import logging
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
    """Images a second, turn by turn; there is one turn more of the engines than of predict.

    `after_start` are those of predict without what it takes to start Python and import the
    trainer.
    """

    images: int
    processes: int
    engines: tuple[float, ...]
    predict: tuple[float, ...]
    after_start: tuple[float, ...]

    @property
    def ratio(self) -> Spread:
        """Predict by the mean of the engines just before and just after it."""
        return self._ratio(self.predict)

    @property
    def ratio_after_start(self) -> Spread:
        """The same without the start of the command."""
        return self._ratio(self.after_start)

    def _ratio(self, rates: Sequence[float]) -> Spread:
        around = [(before + after) / 2 for before, after in pairwise(self.engines)]
        return Spread.of(rate / mean for rate, mean in zip(rates, around, strict=True))

    def to_json(self) -> dict[str, object]:
        """All of it as plain JSON values."""
        return {
            "predict_vs_engine": self.ratio.median,
            "spread": asdict(self.ratio),
            "after_start": asdict(self.ratio_after_start),
            "turns": asdict(self),
            "machine": describe_machine(),
        }

    def to_text(self) -> str:
        """The same for people."""
        return "\n".join(
            [
                f"{self.images} images, {self.processes} processes",
                _line("predict / bare engines", self.ratio),
                _line("the same, after the start of Python", self.ratio_after_start),
                _line("predict, images a second", Spread.of(self.predict)),
                _line("bare engines, images a second", Spread.of(self.engines)),
            ]
        )


def _line(title: str, found: Spread) -> str:
    return f"  {title}: {found.median:.3g} ({found.lowest:.3g} to {found.highest:.3g})"


def measure_bulk(bundle: Path, folder: Path, settings: BulkSettings) -> BulkResult:
    """Both in turns, over all images below a folder."""
    cores = separate_cores(settings.processes)
    images = [path.read_bytes() for path in find_images(folder).images]
    if len(images) < len(cores):
        raise MeasurementError(f"{folder} has {len(images)} images, expected {len(cores)} at least")
    shares = [images[number :: len(cores)] for number in range(len(cores))]
    predict: list[float] = []
    after_start: list[float] = []
    with engine_processes(bundle, shares, cores) as engines:
        rates = [_engines_per_second(engines, shares)]
        for number in range(settings.rounds):
            elapsed, seconds = _predict(bundle, folder, cores)
            predict.append(len(images) / elapsed)
            after_start.append(len(images) / seconds)
            rates.append(_engines_per_second(engines, shares))
            logger.info("round %d: predict %.1f, engines %.1f", number, predict[-1], rates[-1])
    turns = (tuple(rates), tuple(predict), tuple(after_start))
    return BulkResult(len(images), len(cores), *turns)


def _engines_per_second(
    engines: Sequence[EngineProcess], shares: Sequence[Sequence[bytes]]
) -> float:
    """The sum of what each does, so that none waits for a slower one."""
    for engine in engines:
        engine.start()
    times = [engine.finished() for engine in engines]
    pairs = zip(shares, times, strict=True)
    return sum(len(share) / (ended - began) for share, (began, ended) in pairs)


def _predict(bundle: Path, folder: Path, cores: Sequence[int]) -> tuple[float, float]:
    """Seconds of the whole command, and of those it counts itself."""
    with tempfile.TemporaryDirectory(prefix="leafcode-") as scratch, pinned(cores):
        out = Path(scratch) / "labels.parquet"
        command = ["-m", "trainer", "predict", str(bundle), str(folder), "--out", str(out)]
        started = time.perf_counter()
        done = subprocess.run(  # noqa: S603
            [sys.executable, *command, "--json"], capture_output=True, text=True, check=False
        )
        elapsed = time.perf_counter() - started
    if done.returncode:
        raise MeasurementError(f"predict failed: {done.stderr.strip()}")
    summary = json.loads(done.stdout)
    if summary["unreadable"]:
        raise MeasurementError(f"{summary['unreadable']} images of {folder} cannot be read")
    return elapsed, summary["seconds"]
