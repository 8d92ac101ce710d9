"""`bench.png`: figures beside their goals, where time goes, and how it grows."""

from pathlib import Path
from typing import Any

from trainer.bench.curves import Point
from trainer.bench.peers import optional
from trainer.bench.run import GOALS, SpeedReport

__all__ = ["draw_speed"]

_INK, _GOOD, _SHORT, _PALE = "#22333b", "#2a7f62", "#c8553d", "#c9cfd3"
_STEPS = (1, 2, 5)  # marks of a logarithmic axis within a power of ten
_LINES = {"coding": "#2a7f62", "pipeline": "#1f5fa8", "blas_product": "#c8553d"}


def draw_speed(report: SpeedReport, path: Path) -> None:
    """One picture of the whole run."""
    figure_module = optional("matplotlib.figure", "matplotlib")
    figure = figure_module.Figure(figsize=(14, 9), layout="constrained")
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
        _draw_curve(axis, report.curves.get(name, []), logarithmic=logarithmic)
        axis.set_title(f"Time by {title}", fontsize=10)
    figure.savefig(path, dpi=110)


def _draw_figures(axis: Any, report: SpeedReport) -> None:
    """Each figure as a share of what must be reached, or of its aim; more is better."""
    names = [name for name in reversed(report.figures) if GOALS[name].share(1) is not None]
    for place, name in enumerate(names):
        goal, spread = GOALS[name], report.figures[name].spread
        median, *rounds = (
            goal.share(value) for value in (spread.median, spread.lowest, spread.highest)
        )
        colour = _SHORT if goal.missed(spread.median) else _GOOD
        axis.plot(rounds, [place, place], color=colour, linewidth=2)
        axis.plot(median, place, "o", color=colour, markersize=6)
        if goal.aim:
            axis.plot(goal.share(goal.aim), place, "D", color=_INK, markersize=3)
    values = [f"{name} {report.figures[name].value:.3g}" for name in names]
    axis.set_yticks(range(len(names)), values)
    axis.axvline(1, color=_INK, linewidth=1)
    axis.set_xscale("log")
    axis.grid(axis="x", color=_PALE, linewidth=0.5)
    axis.set_title("Share of what must be (dot: median, line: rounds, diamond: aim)", fontsize=9)
    axis.tick_params(labelsize=7)


def _draw_stages(axis: Any, report: SpeedReport) -> None:
    if report.stages is None:
        axis.set_axis_off()
        return
    bottoms = {"measured": 0.0, "floor": 0.0}
    colours = ("#8d99ae", "#1f5fa8", "#6d597a", "#2a7f62", "#79b791", "#e3b23c", "#c8553d")
    for stage, colour in zip(report.stages.stages, colours, strict=True):
        times = {"measured": 1e3 * stage.seconds.median, "floor": 1e3 * stage.floor}
        axis.bar(
            list(times), list(times.values()), 0.55, list(bottoms.values()),
            color=colour, label=f"{stage.name} {times['measured']:.2f} ms",
        )  # fmt: skip
        bottoms = {name: bottoms[name] + times[name] for name in bottoms}
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[::-1], labels[::-1], fontsize=8, frameon=False, loc="upper right")
    axis.set_ylabel("ms")
    axis.set_title("Stages of one image", fontsize=10)


def _draw_curve(axis: Any, points: list[Point], *, logarithmic: bool) -> None:
    for workload, colour in _LINES.items():
        measured = [point for point in points if workload in point.seconds]
        if measured:
            label = workload.replace("_", " ").replace("blas", "BLAS")
            spreads = [point.seconds[workload] for point in measured]
            y = [1e3 * spread.median for spread in spreads]
            below = [1e3 * (spread.median - spread.lowest) for spread in spreads]
            above = [1e3 * (spread.highest - spread.median) for spread in spreads]
            x = [point.value for point in measured]
            axis.errorbar(x, y, [below, above], fmt="o-", color=colour, label=label, capsize=2)
    if logarithmic:
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(
            optional("matplotlib.ticker", "matplotlib").LogLocator(10, _STEPS)
        )
        axis.yaxis.set_major_formatter("{x:g}")
    else:
        axis.set_ylim(bottom=0)
    axis.set_xticks([point.value for point in points], [_short(point.value) for point in points])
    axis.minorticks_off()
    axis.grid(color=_PALE, linewidth=0.5)
    axis.set_ylabel("ms")
    if points:
        axis.legend(fontsize=8, frameon=False)


def _short(value: float) -> str:
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:.0f}"
