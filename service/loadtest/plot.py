"""Pictures of a load test: latency over offered load, or latency and rate over time.

matplotlib is in the extra `plot`; without `--plot` nobody needs it.
"""

from pathlib import Path
from typing import Any

import numpy as np

from service.loadtest.errors import LoadTestError
from service.loadtest.load import Load
from service.loadtest.optional import optional
from service.loadtest.ramp import RampReport

__all__ = ["check_plot", "draw_ramp", "draw_run"]

_INK, _PALE, _BAD = "#22333b", "#c9cfd3", "#c8553d"
_QUANTILES = {"p50": "#2a7f62", "p90": "#1f5fa8", "p99": "#c8553d"}
_STEPS = (1, 2, 5)  # marks of a logarithmic axis within a power of ten
_MAX_INTERVALS = 60


def check_plot(path: Path) -> None:
    """Raise `LoadTestError` if no picture can be written here, before any work is done."""
    known = optional("matplotlib.figure", "matplotlib", "plot").Figure().canvas
    formats = sorted(known.get_supported_filetypes())
    if path.suffix[1:].lower() not in formats:
        raise LoadTestError(
            f"{path} is no picture that can be drawn, expected a name that ends in one of "
            f"{', '.join(formats)}"
        )


def draw_ramp(report: RampReport, title: str, path: Path) -> None:
    """Latency over offered load, with the knee and the rates that were too high."""
    figure, axis = _figure(title, 1)
    steps = [item for item in report.steps if item.successes]
    rates = [item.rate for item in steps]
    for name, colour in _QUANTILES.items():
        times = [getattr(item.successes, f"{name}_ms") for item in steps]
        axis.plot(rates, times, "o-", color=colour, label=name, markersize=4)
    end = 1.05 * max((item.rate for item in report.steps), default=1.0)
    if report.knee is not None:
        axis.axvline(report.knee.rate, color=_INK, linestyle="--", linewidth=1)
        place = (report.knee.rate, 0.95)
        label, across = f"knee: {report.knee.rate:.0f}/s ", axis.get_xaxis_transform()
        axis.text(*place, label, transform=across, ha="right", color=_INK)
    if report.too_high is not None:
        axis.axvspan(report.too_high.rate, end, color=_BAD, alpha=0.1, label="too many")
    axis.set_xlim(0, end)
    axis.set_xlabel("requests offered a second")
    _time_axis(axis)
    _write(figure, path)


def draw_run(load: Load, title: str, path: Path) -> None:
    """Latency by the time a request was due, and answers by the time they came."""
    figure, (above, below) = _figure(title, 2)
    start = load.exchanges[0].due if load.exchanges else 0.0
    due = np.array([item.due - start for item in load.exchanges])
    ended = np.array([item.ended - start for item in load.exchanges])
    good = np.array([item.status == 200 for item in load.exchanges], bool)
    width = max(1.0, np.ceil(load.seconds / _MAX_INTERVALS))
    edges = np.arange(0.0, load.seconds + width, width)
    groups = [(ended - due)[good & (due // width == place)] for place in range(len(edges) - 1)]
    for name, colour in _QUANTILES.items():
        share = int(name[1:]) / 100
        times = [1e3 * np.quantile(group, share) if len(group) else np.nan for group in groups]
        above.stairs(times, edges, baseline=None, color=colour, label=name, linewidth=1.5)
    for chosen, colour, label in ((good, _INK, "status 200"), (~good, _BAD, "errors")):
        counts, _ = np.histogram(ended[chosen], edges)
        below.stairs(counts / width, edges, color=colour, label=label, linewidth=1.5)
    _time_axis(above)
    below.set_ylabel("answers a second")
    below.set_xlabel("seconds since the first request")
    _finish(below)
    _write(figure, path)


def _figure(title: str, rows: int) -> tuple[Any, Any]:
    module = optional("matplotlib.figure", "matplotlib", "plot")
    figure = module.Figure(figsize=(9, 3 + 2 * rows), layout="constrained")
    figure.suptitle(title, color=_INK, fontsize=10)
    return figure, figure.subplots(rows, 1, sharex=True)


def _time_axis(axis: Any) -> None:
    """Milliseconds, on a logarithmic axis that begins and ends at a mark."""
    ticker = optional("matplotlib.ticker", "matplotlib", "plot")
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(ticker.LogLocator(10, _STEPS))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_locator(ticker.NullLocator())
    low, high = axis.dataLim.intervaly
    if 0 < low <= high < np.inf:
        marks = [step * 10.0**power for power in range(-4, 8) for step in _STEPS]
        below = max(mark for mark in marks if mark < low or mark == marks[0])
        axis.set_ylim(below, min(mark for mark in marks if mark > high or mark == marks[-1]))
    axis.set_ylabel("ms since the request was due")
    _finish(axis)


def _finish(axis: Any) -> None:
    axis.grid(color=_PALE, linewidth=0.5)
    # Above the axis, where no line can run through it.
    axis.legend(fontsize=8, frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))


def _write(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise LoadTestError(f"{path} cannot be written: {error.strerror}") from error
