"""The whole benchmark: every figure, stages, curves and servers, into one document.

A part that cannot be measured does not stop the rest: it is missing, with its reason,
and the command says so and fails.
"""

import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from service.engine import LeafcodeError
from trainer.bench.curves import CURVES, Point
from trainer.bench.engine_bench import EngineBench, set_up_engine_bench
from trainer.bench.engine_figures import ENGINE_FIGURES
from trainer.bench.goals import Figure, Goal
from trainer.bench.machine import describe_machine
from trainer.bench.server_comparison import ServerResult, compare_servers
from trainer.bench.service_bench import set_up_service_bench
from trainer.bench.service_figures import SERVICE_FIGURES
from trainer.bench.settings import BenchSettings
from trainer.bench.stages import StageReport, measure_stages
from trainer.embedded import EMBEDDED_MODELS

__all__ = ["GOALS", "Sources", "SpeedReport", "measure_speed"]

logger = logging.getLogger(__name__)

Part = TypeVar("Part")
Bench = TypeVar("Bench")

GOALS: dict[str, Goal[Any]] = {**ENGINE_FIGURES, **SERVICE_FIGURES}


@dataclass(frozen=True)
class Sources:
    """Images, the folder that keeps the models that are built, and the repository to serve."""

    data: Path
    kept: Path | None = None
    served: Path = EMBEDDED_MODELS


@dataclass
class SpeedReport:
    """All that one run measured; `missing` has the reason of every part that it could not."""

    settings: BenchSettings
    machine: dict[str, Any]
    made: tuple[str, ...]
    figures: dict[str, Figure] = field(default_factory=dict)
    curves: dict[str, list[Point]] = field(default_factory=dict)
    stages: StageReport | None = None
    servers: dict[str, ServerResult] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def short(self) -> list[str]:
        """Figures that miss what they must reach."""
        return [name for name, figure in self.figures.items() if GOALS[name].missed(figure.value)]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; every figure is a number under its own name, its median."""
        return {
            **{name: figure.value for name, figure in self.figures.items()},
            "goals": {
                name: {
                    "floor": goal.floor,
                    "aim": goal.aim,
                    "paper": goal.paper,
                    **({} if goal.ceiling is None else {"ceiling": goal.ceiling}),
                }
                for name, goal in GOALS.items()
            },
            "spread": {name: asdict(figure.spread) for name, figure in self.figures.items()},
            "short": self.short(),
            "missing": self.missing,
            "seconds": {
                name: {side: asdict(spread) for side, spread in figure.seconds.items()}
                for name, figure in self.figures.items()
            },
            "facts": {name: item.facts for name, item in self.figures.items() if item.facts},
            "servers": {name: asdict(result) for name, result in self.servers.items()},
            "stages": None if self.stages is None else self.stages.to_json(),
            "curves": {
                name: [asdict(point) for point in points] for name, points in self.curves.items()
            },
            "made_images": list(self.made),
            "machine": self.machine,
            "settings": self.settings.model_dump(),
            "run_seconds": round(self.seconds, 1),
        }


def measure_speed(sources: Sources, settings: BenchSettings) -> SpeedReport:
    """Measure everything on the images that there are."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="leafcode-") as scratch:
        kept = sources.kept or Path(scratch) / "models"
        bench = set_up_engine_bench(sources.data, kept, Path(scratch), settings)
        report = SpeedReport(settings, describe_machine(), bench.photographs.made)
        _measure(bench, report)
        _measure_service(bench, sources.served, report)
    report.seconds = time.monotonic() - started
    return report


def _measure(bench: EngineBench, report: SpeedReport) -> None:
    _measure_figures(ENGINE_FIGURES, bench, report)
    report.stages = _attempt("stages", measure_stages, bench, report)
    for name, curve in CURVES.items():
        points = _attempt(f"curve by {name}", curve, bench, report)
        if points is not None:
            report.curves[name] = points


def _measure_service(bench: EngineBench, served: Path, report: SpeedReport) -> None:
    images = bench.photographs.caltech_test
    try:
        with set_up_service_bench(served, images, bench.settings) as running:
            _measure_figures(SERVICE_FIGURES, running, report)
            results = _attempt(
                "servers", lambda bench: compare_servers(bench, report.missing), running, report
            )
            report.servers = results or {}
    except LeafcodeError as error:
        # The service did not start, so nothing of it can be measured.
        report.missing.update(dict.fromkeys([*SERVICE_FIGURES, "servers"], f"{error}"))


def _measure_figures(goals: Mapping[str, Goal[Bench]], bench: Bench, report: SpeedReport) -> None:
    for name, goal in goals.items():
        figure = _attempt(name, goal.measure, bench, report)
        if figure is not None:
            report.figures[name] = figure
            found = figure.spread
            text = "%s %.3g (%.3g to %.3g)"
            logger.info(text, name, found.median, found.lowest, found.highest)


def _attempt(
    name: str, measure: Callable[[Bench], Part], bench: Bench, report: SpeedReport
) -> Part | None:
    logger.info("measuring %s", name)
    try:
        return measure(bench)
    except Exception as error:  # noqa: BLE001  # whatever a library throws, the rest can be measured
        report.missing[name] = f"{error}" or type(error).__name__
        logger.warning("%s could not be measured: %s", name, report.missing[name])
        return None
