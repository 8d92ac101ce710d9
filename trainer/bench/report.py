"""The benchmark's findings for people: on the terminal, and as a section of RESULTS.md."""

import re
import textwrap
from collections.abc import Sequence

from trainer.bench.run import GOALS, SpeedReport
from trainer.bench.tables import Table, stage_bars, tables

__all__ = ["in_place_of_section", "markdown_section", "speed_text"]

_HEADING = "## Speed"


def speed_text(report: SpeedReport) -> str:
    """All tables, then what fell short and what is missing."""
    parts = [_inputs(report)]
    for table in tables(report):
        parts.append("\n".join([table.title, *_bars(report, table), *_aligned(table)]))
        if table.note:
            parts.append(_wrapped(table.note))
    return "\n\n".join([*parts, "\n".join(_conclusions(report))])


def markdown_section(report: SpeedReport) -> str:
    """The section of RESULTS.md, from its heading to its last line."""
    parts = [_HEADING, _method(report)]
    for table in tables(report):
        parts.append(f"### {table.title}")
        if bars := _bars(report, table):
            parts.append("\n".join(["```text", *bars, "```"]))
        parts.append("\n".join(_piped(table)))
        if table.note:
            parts.append(_wrapped(table.note))
    return "\n\n".join([*parts, "### Verdict", _listed(_conclusions(report))]) + "\n"


def _bars(report: SpeedReport, table: Table) -> list[str]:
    about_stages = table.header[0] == "stage"
    return stage_bars(report.stages) if report.stages and about_stages else []


def in_place_of_section(page: str, section: str) -> str:
    """`page` with its section of the same heading replaced, or with it added at the end."""
    old = re.compile(rf"^{re.escape(_HEADING)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if not old.search(page):
        return f"{page.rstrip()}\n\n{section}" if page.strip() else section
    replaced = old.sub(lambda _: f"{section}\n", page, count=1)
    return f"{replaced.rstrip()}\n"


def _inputs(report: SpeedReport) -> str:
    text = f"one core of {report.machine['cpu']}, {report.seconds:.0f} s in all"
    if report.machine["load_average"] > 1:
        load = report.machine["load_average"]
        text += f", load average {load:.1f} when it began, which lengthens elapsed times"
    if report.made:
        text += f"; made here because they are absent: images of {', '.join(report.made)}"
    return text


def _method(report: SpeedReport) -> str:
    s = report.settings
    return _wrapped(
        "`python -m trainer reproduce speed --data <folder of both data sets> --markdown "
        f"RESULTS.md`, as `make bench` does it: {_inputs(report)}. "
        "Ratios are of times taken in turns on the same core, one ratio a round. Every figure is "
        f"the median of at least {s.rounds} rounds where several are shown, and is judged by it; "
        "beside it are the lowest and the highest round. One thread unless said. Ratios on one "
        "core are of CPU time, so that a busy machine does not lengthen the longer side; images "
        f"a second and what takes two cores are of elapsed time. {s.vectors} descriptors "
        "drawn at random over photographs that the model has not seen, "
        f"depth {s.depth}, {s.atoms} atoms ({s.many_atoms} are many), {s.nonzeros} nonzeros. "
        f"Photographs are of {s.height}x{s.width} pixels, images of Caltech 101 of at most 300; "
        f"how many a second is counted with {2 * s.atoms} atoms, as in the paper."
    )


def _conclusions(report: SpeedReport) -> list[str]:
    lines = []
    for name in report.short():
        found = report.figures[name].spread
        rounds = f" ({found.lowest:.3g} – {found.highest:.3g})" if found.rounds > 1 else ""
        lines.append(f"{name} is {found.median:.3g}{rounds}, {GOALS[name].missed(found.median)}.")
    lines += [f"{name} is missing: {reason}." for name, reason in report.missing.items()]
    return lines or ["Every figure reaches what it must."]


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _aligned(table: Table) -> list[str]:
    rows = [table.header, *table.rows]
    columns = range(len(table.header))
    widths = [max(len(row[column]) for row in rows) for column in columns]
    sides = ["<" if table.aligns_left(column) else ">" for column in columns]
    return ["  " + _padded(row, sides, widths).rstrip() for row in rows]


def _padded(row: Sequence[str], sides: Sequence[str], widths: Sequence[int]) -> str:
    cells = zip(row, sides, widths, strict=True)
    return "  ".join(f"{cell:{side}{width}}" for cell, side, width in cells)


def _piped(table: Table) -> list[str]:
    rules = ["---" if table.aligns_left(i) else "---:" for i in range(len(table.header))]
    return [_pipes(table.header), f"|{'|'.join(rules)}|", *(_pipes(row) for row in table.rows)]


def _pipes(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def _wrapped(text: str, width: int = 100) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
