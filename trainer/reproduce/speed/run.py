"""The whole benchmark: every figure, the stages and the curves, into one document.

A part that cannot be measured does not stop the rest: it is missing, with its reason,
and the command says so and fails.
"""

import logging
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from trainer.reproduce.speed.curves import CURVES, Point
from trainer.reproduce.speed.figures import FIGURES, Figure
from trainer.reproduce.speed.machine import describe_machine
from trainer.reproduce.speed.settings import SpeedSettings
from trainer.reproduce.speed.stages import StageReport, measure_stages
from trainer.reproduce.speed.workbench import Workbench, set_up

__all__ = ["SpeedReport", "measure_speed"]

logger = logging.getLogger(__name__)

Part = TypeVar("Part")


@dataclass
class SpeedReport:
    """All that one run measured; `missing` has the reason of every part that it could not."""

    settings: SpeedSettings
    machine: dict[str, Any]
    made: tuple[str, ...]
    figures: dict[str, Figure] = field(default_factory=dict)
    curves: dict[str, list[Point]] = field(default_factory=dict)
    stages: StageReport | None = None
    missing: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def short(self) -> list[str]:
        """Figures below the least that they must reach."""
        return [
            name
            for name, figure in self.figures.items()
            if (floor := FIGURES[name].floor) is not None and figure.value < floor
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; every figure is a number under its own name."""
        return {
            **{name: figure.value for name, figure in self.figures.items()},
            "goals": {
                name: {"floor": goal.floor, "aim": goal.aim, "paper": goal.paper}
                for name, goal in FIGURES.items()
            },
            "short": self.short(),
            "missing": self.missing,
            "seconds": {name: figure.seconds for name, figure in self.figures.items()},
            "stages": None if self.stages is None else self.stages.to_json(),
            "curves": self.curves,
            "made_images": list(self.made),
            "machine": self.machine,
            "settings": asdict(self.settings),
            "run_seconds": round(self.seconds, 1),
        }


def measure_speed(data: Path, settings: SpeedSettings, models: Path | None = None) -> SpeedReport:
    """Measure everything on the images below `data`; bundles are kept in `models` if given."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="leafcode-") as scratch:
        bench = set_up(data, models or Path(scratch) / "models", Path(scratch), settings)
        report = SpeedReport(settings, describe_machine(), bench.photographs.made)
        _measure(bench, report)
    report.seconds = time.monotonic() - started
    return report


def _measure(bench: Workbench, report: SpeedReport) -> None:
    for name, goal in FIGURES.items():
        figure = _attempt(name, goal.measure, bench, report)
        if figure is not None:
            report.figures[name] = figure
            logger.info("%s %.3g", name, figure.value)
    report.stages = _attempt("stages", measure_stages, bench, report)
    for name, curve in CURVES.items():
        points = _attempt(f"curve by {name}", curve, bench, report)
        if points is not None:
            report.curves[name] = points


def _attempt(
    name: str, measure: Callable[[Workbench], Part], bench: Workbench, report: SpeedReport
) -> Part | None:
    logger.info("measuring %s", name)
    try:
        return measure(bench)
    except Exception as error:  # noqa: BLE001  # whatever a library throws, the rest can be measured
        report.missing[name] = f"{error}" or type(error).__name__
        logger.warning("%s could not be measured: %s", name, report.missing[name])
        return None
