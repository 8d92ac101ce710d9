"""`bench.png`: figures beside their goals, where time goes, and how it grows."""

from pathlib import Path
from typing import Any

from trainer.bench.curves import Point
from trainer.bench.engine_figures import FIGURES
from trainer.bench.peers import optional
from trainer.bench.run import SpeedReport

__all__ = ["draw_speed"]

_INK, _GOOD, _SHORT, _PALE = "#22333b", "#2a7f62", "#c8553d", "#c9cfd3"
_STEPS = (1, 2, 5)  # marks of a logarithmic axis within a power of ten
_LINES = {"coding": "#2a7f62", "pipeline": "#1f5fa8", "blas_product": "#c8553d"}


def draw_speed(report: SpeedReport, path: Path) -> None:
    """One picture of the whole run."""
    figure_module = optional("matplotlib.figure", "matplotlib")
    figure = figure_module.Figure(figsize=(13, 8), layout="constrained")
    figure.suptitle(f"Leafcode on one core of {report.machine['cpu']}", color=_INK)
    axes = figure.subplots(2, 3)
    _draw_figures(axes[0, 0], report)
    _draw_stages(axes[0, 1], report)
    panels: dict[str, tuple[Any, str]] = {
        "atoms": (axes[0, 2], "atoms of the dictionary"),
        "depth": (axes[1, 0], "depth of the tree"),
        "nonzeros": (axes[1, 1], "nonzeros of a code"),
        "pixels": (axes[1, 2], "pixels of the image"),
    }
    for name, (axis, title) in panels.items():
        logarithmic = name in ("atoms", "pixels")
        _draw_curve(axis, report.curves.get(name, []), name, logarithmic=logarithmic)
        axis.set_title(f"Time by {title}", fontsize=10)
    figure.savefig(path, dpi=110)


def _draw_figures(axis: Any, report: SpeedReport) -> None:
    """Each figure as a share of its floor, or of its aim where it has none."""
    shares = {}
    for name, goal in FIGURES.items():
        least = goal.floor or goal.aim
        if name in report.figures and least:
            shares[name] = report.figures[name].value / least
    names = list(shares)[::-1]
    colours = [_GOOD if shares[name] >= 1 else _SHORT for name in names]
    axis.barh(names, [shares[name] for name in names], color=colours)
    for place, name in enumerate(names):
        value = f" {report.figures[name].value:.3g}"
        axis.text(shares[name], place, value, va="center", color=_INK, fontsize=9)
        goal = FIGURES[name]
        if goal.floor and goal.aim:
            axis.plot(goal.aim / goal.floor, place, "D", color=_INK, markersize=4)
    axis.axvline(1, color=_INK, linewidth=1)
    axis.set_title("Share of what must be reached (diamond: aim)", fontsize=10)
    axis.tick_params(labelsize=8)


def _draw_stages(axis: Any, report: SpeedReport) -> None:
    if report.stages is None:
        axis.set_axis_off()
        return
    bottoms = {"measured": 0.0, "floor": 0.0}
    colours = ("#8d99ae", "#1f5fa8", "#6d597a", "#2a7f62", "#79b791", "#e3b23c", "#c8553d")
    for stage, colour in zip(report.stages.stages, colours, strict=True):
        times = {"measured": 1e3 * stage.seconds, "floor": 1e3 * stage.floor}
        axis.bar(
            list(times), list(times.values()), 0.55, list(bottoms.values()),
            color=colour, label=f"{stage.name} {times['measured']:.2f} ms",
        )  # fmt: skip
        bottoms = {name: bottoms[name] + times[name] for name in bottoms}
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[::-1], labels[::-1], fontsize=8, frameon=False, loc="upper right")
    axis.set_ylabel("ms")
    axis.set_title("Stages of one image", fontsize=10)


def _draw_curve(axis: Any, points: list[Point], name: str, *, logarithmic: bool) -> None:
    for workload, colour in _LINES.items():
        measured = [point for point in points if workload in point]
        if measured:
            label = workload.replace("_", " ").replace("blas", "BLAS")
            x = [point[name] for point in measured]
            y = [1e3 * point[workload] for point in measured]
            axis.plot(x, y, "o-", color=colour, label=label)
    if logarithmic:
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(
            optional("matplotlib.ticker", "matplotlib").LogLocator(10, _STEPS)
        )
        axis.yaxis.set_major_formatter("{x:g}")
    else:
        axis.set_ylim(bottom=0)
    axis.set_xticks([point[name] for point in points], [_short(point[name]) for point in points])
    axis.minorticks_off()
    axis.grid(color=_PALE, linewidth=0.5)
    axis.set_ylabel("ms")
    if points:
        axis.legend(fontsize=8, frameon=False)


def _short(value: float) -> str:
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:.0f}"
