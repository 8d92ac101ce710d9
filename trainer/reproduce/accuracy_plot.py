"""Accuracy over the size of the dictionary, ours beside the paper's."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from trainer.bench.peers import optional
from trainer.reproduce.accuracy import AccuracyReport, Row

__all__ = ["draw_accuracy"]

_COLOURS = ("#2a7f62", "#1f5fa8", "#c8553d", "#6d597a", "#e3b23c", "#8d99ae")
_PALE = "#c9cfd3"


def draw_accuracy(report: AccuracyReport, path: Path) -> None:
    """One line with error bars for each column of the table, the paper's dashed beside it."""
    figure_module = optional("matplotlib.figure", "matplotlib")
    figure = figure_module.Figure(figsize=(8, 5), layout="constrained")
    axis = figure.subplots()
    rows = sorted(report.rows, key=lambda row: (_line(row), row.cell.atoms))
    columns = [list(group) for _, group in groupby(rows, key=_line)]
    for place, column in enumerate(columns):
        _draw_column(axis, column, _COLOURS[place % len(_COLOURS)])
    atoms = sorted({row.cell.atoms for row in rows})
    axis.set_xscale("log", base=2)
    axis.set_xticks(atoms, [str(number) for number in atoms])
    axis.minorticks_off()
    axis.set_xlabel("atoms of the dictionary")
    axis.set_ylabel("mean per-class accuracy")
    axis.set_title(f"{report.experiment.benchmark.title}, {_splits(report)}", fontsize=10)
    axis.grid(color=_PALE, linewidth=0.5)
    axis.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def _line(row: Row) -> str:
    """The name of the line that a row is a point of."""
    return f"{row.cell.column}, {row.cell.dictionary} dictionary"


def _draw_column(axis: Any, rows: Sequence[Row], colour: str) -> None:
    for label, style, found in (
        (_line(rows[0]), "o-", [(row.cell.atoms, row.ours) for row in rows]),
        (f"{rows[0].cell.column}, paper", "s--", [(row.cell.atoms, row.paper) for row in rows]),
    ):
        known = [(atoms, accuracy) for atoms, accuracy in found if accuracy]
        if known:
            axis.errorbar(
                [atoms for atoms, _ in known],
                [accuracy.mean for _, accuracy in known],
                [accuracy.deviation for _, accuracy in known],
                fmt=style,
                color=colour,
                label=label,
                capsize=3,
                alpha=1 if style == "o-" else 0.5,
            )


def _splits(report: AccuracyReport) -> str:
    count = len(report.seeds)
    return f"{count} split{'' if count == 1 else 's'}"
