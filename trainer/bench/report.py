"""The benchmark's findings for people: on the terminal, and as a section of RESULTS.md."""

from trainer.bench.run import GOALS, SpeedReport
from trainer.bench.tables import stage_bars, tables
from trainer.tables import Table, aligned, listed, piped, wrapped

__all__ = ["markdown_section", "speed_text"]

_HEADING = "## Speed"


def speed_text(report: SpeedReport) -> str:
    """All tables, then what fell short and what is missing."""
    parts = [_inputs(report)]
    for table in tables(report):
        parts.append("\n".join([table.title, *_bars(report, table), *aligned(table)]))
        if table.note:
            parts.append(wrapped(table.note))
    return "\n\n".join([*parts, "\n".join(_conclusions(report))])


def markdown_section(report: SpeedReport) -> str:
    """The section of RESULTS.md, from its heading to its last line."""
    parts = [_HEADING, _method(report)]
    for table in tables(report):
        parts.append(f"### {table.title}")
        if bars := _bars(report, table):
            parts.append("\n".join(["```text", *bars, "```"]))
        parts.append("\n".join(piped(table)))
        if table.note:
            parts.append(wrapped(table.note))
    return "\n\n".join([*parts, "### Verdict", listed(_conclusions(report))]) + "\n"


def _bars(report: SpeedReport, table: Table) -> list[str]:
    about_stages = table.header[0] == "stage"
    return stage_bars(report.stages) if report.stages and about_stages else []


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
    return wrapped(
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
