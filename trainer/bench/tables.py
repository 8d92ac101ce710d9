"""What a run measured as tables of text, for the terminal and for RESULTS.md alike."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from trainer.bench.curves import Point
from trainer.bench.engine_figures import ENGINE_FIGURES
from trainer.bench.goals import Figure, Goal
from trainer.bench.run import SpeedReport
from trainer.bench.server_comparison import ServerResult
from trainer.bench.service_figures import SERVICE_FIGURES
from trainer.bench.spread import Spread
from trainer.bench.stages import Rates, StageReport
from trainer.tables import Table

__all__ = ["stage_bars", "tables"]

_BAR_WIDTH = 40
_SPREAD = "lowest – highest"
_WORDS = ("must be", "aim", "paper", "verdict", "the floor is", "recovered")

# Seconds in the paper, a laptop of 2011 with four cores, by number of atoms (its largest
# dictionary has 8092).
_PAPER_PIPELINE = {1024: "0.145", 2048: "0.147", 4096: "0.150", 8192: "0.155"}


_Table = partial(Table, words=_WORDS)


def tables(report: SpeedReport) -> Iterator[Table]:
    """Everything that was measured, what matters most first."""
    header = ("figure", "median", _SPREAD, "must be", "aim", "paper", "verdict")
    yield _Table("Side by side", header, _figure_rows(report, ENGINE_FIGURES))
    rows = [row[:-2] + row[-1:] for row in _figure_rows(report, SERVICE_FIGURES)]
    yield _Table("Service", header[:-2] + header[-1:], rows, _service_facts(report))
    if report.servers:
        yield _servers(report)
    yield _Table(
        "Seconds beside the paper's", ("", "median", _SPREAD, "paper"), list(_time_rows(report))
    )
    if report.stages:
        yield _Table(
            "Stages of one image and their floors",
            ("stage", "ms", _SPREAD, "floor ms", "times the floor", "reached", "the floor is"),
            list(_stage_rows(report.stages)),
            _floors(report.stages.rates),
        )
    for name, points in report.curves.items():
        yield _curve(name, points)


def _servers(report: SpeedReport) -> Table:
    return _Table(
        "The same engine behind other servers",
        ("server", "images a second", _SPREAD, "p50 ms", "p99 ms", "failed of 40", "recovered"),
        [_server_row(name, result) for name, result in report.servers.items()],
        f"Eight clients, the same images in turns, medians of {report.settings.rounds} rounds. "
        "Then forty requests, in the middle of which one worker is killed by SIGKILL: how many are "
        "not answered with labels, and how long it takes until all workers are back and answer.",
    )


def _curve(name: str, points: list[Point]) -> Table:
    columns = list(points[0].seconds)
    header = (name, *(cell for key in columns for cell in (f"{_title(key)} ms", _SPREAD)))
    rows = [
        (
            str(point.value),
            *(cell for key in columns for cell in _cells(point.seconds[key], 1e3, ".2f")),
        )
        for point in points
    ]
    return _Table(f"Growth by {name}", header, rows, _growth(name, points))


def _growth(name: str, points: list[Point]) -> str:
    """How much longer the last point takes than the first."""
    first, last = points[0], points[-1]
    factors = [
        f"{_title(key)} {last.seconds[key].median / seconds.median:.2g} times"
        for key, seconds in first.seconds.items()
    ]
    return f"{last.value / first.value:.2g} times the {name}: {', '.join(factors)} as long."


def _title(workload: str) -> str:
    return workload.replace("_", " ").replace("blas", "BLAS")


def _floors(rates: Rates) -> str:
    return (
        "A floor is what the stage's multiply-adds take at the rate of a BLAS product "
        f"({rates.multiply_adds / 1e9:.0f} billion a second) or its bytes at that of a copy "
        f"({rates.bytes / 1e9:.1f} GB a second), whichever is longer, with every table entry "
        "that is touched read from memory once. A stage whose tables stay in a cache can be "
        "faster than that."
    )


def _service_facts(report: SpeedReport) -> str:
    """Where the CPU goes, and what the load generator takes of it."""
    facts = [
        fact
        for name in SERVICE_FIGURES
        if name in report.figures
        for fact in _sentences(name, report.figures[name])
    ]
    return " ".join(facts)


def _sentences(name: str, figure: Figure) -> Iterator[str]:
    facts, seconds = figure.facts, figure.seconds
    if name == "service_vs_engine":
        yield f"{facts['service_per_second']:.0f} images a second over HTTP."
    elif name == "front_end_ms":
        yield (
            f"CPU a request: {figure.value:.2f} ms in the front end, {facts['workers_ms']:.2f} ms "
            f"in the workers, and {facts['generator_ms']:.2f} ms in the load generator, which "
            "shares the cores."
        )
    elif name == "service_added_ms":
        yield (
            f"A small JPEG takes {1e3 * seconds['service'].median:.2f} ms over HTTP and "
            f"{1e3 * seconds['engine'].median:.2f} ms in the bare engine."
        )
    elif name == "latency_p99_at_70":
        yield (
            f"Without load an image takes {1e3 * seconds['unloaded'].median:.1f} ms; at 70 % the "
            f"median is {1e3 * seconds['p50'].median:.1f} ms. In every round the throughput that "
            "the load is a share of, and the time without load, are measured just before. With "
            f"Poisson arrivals instead of evenly spaced ones the p99 figure is "
            f"{facts['poisson']:.1f}."
        )
    elif name == "memory_growth_at_200":
        yield f"All processes together hold {facts['after_mb']:.0f} MB."


def _server_row(name: str, result: ServerResult) -> tuple[str, ...]:
    seconds = result.recovery_seconds
    return (
        name,
        *_cells(result.per_second),
        _number(result.p50_ms.median),
        _number(result.p99_ms.median),
        str(result.failed),
        "never" if seconds is None else f"after {seconds:.1f} s",
    )


def _figure_rows(report: SpeedReport, goals: Mapping[str, Goal[Any]]) -> list[tuple[str, ...]]:
    return [_figure_row(report, name, goal) for name, goal in goals.items()]


def _figure_row(report: SpeedReport, name: str, goal: Goal[Any]) -> tuple[str, ...]:
    measured = report.figures.get(name)
    cells = ("-", "-") if measured is None else _cells(measured.spread)
    return (
        f"{name}: {goal.title}",
        *cells,
        goal.limit or "-",
        _number(goal.aim),
        goal.paper,
        _verdict(report, name, goal),
    )


def _verdict(report: SpeedReport, name: str, goal: Goal[Any]) -> str:
    if name not in report.figures:
        return "missing"
    value = report.figures[name].value
    if goal.missed(value):
        return "missed"
    if goal.aim is None:
        return "reached" if goal.limit else "-"
    return "aim reached" if goal.reaches_aim(value) else "short of the aim"


def _cells(spread: Spread, scale: float = 1, form: str = "") -> tuple[str, str]:
    """The median, and the lowest and the highest round where there are several."""

    def text(value: float) -> str:
        return f"{scale * value:{form}}" if form else _number(scale * value)

    if spread.rounds == 1:
        return text(spread.median), "-"
    return text(spread.median), f"{text(spread.lowest)} – {text(spread.highest)}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _time_rows(report: SpeedReport) -> Iterator[tuple[str, ...]]:
    settings = report.settings
    for name, side, title, paper in (
        ("coding_vs_gemm", "coding", f"coding {settings.vectors} descriptors", "0.034"),
        ("coding_vs_gemm", "blas_product", "their product with the dictionary", "0.294"),
        ("coding_vs_spams", "spams_omp", "SPAMS OMP of them", "0.898 (four cores)"),
        ("sift_vs_opencv", "sift", "dense SIFT of one image", "0.039"),
        ("sift_vs_opencv", "opencv_sift", "OpenCV's dense SIFT of it", "-"),
    ):
        if name in report.figures:
            yield title, *_cells(report.figures[name].seconds[side], 1, ".4f"), paper
    for point in report.curves.get("atoms", []):
        title = f"one image to its labels, {point.value} atoms"
        paper = _PAPER_PIPELINE.get(point.value, "-")
        yield title, *_cells(point.seconds["pipeline"], 1, ".4f"), paper
    if "caltech_frames_per_second" in report.figures:
        seconds = report.figures["caltech_frames_per_second"].seconds["pipeline"]
        title = f"one image of Caltech 101, {2 * settings.atoms} atoms"
        yield title, *_cells(seconds, 1, ".4f"), "0.031 (four cores)"


def _stage_rows(report: StageReport) -> Iterator[tuple[str, ...]]:
    for stage in report.stages:
        yield (
            stage.name,
            *_cells(stage.seconds, 1e3, ".2f"),
            f"{1e3 * stage.floor:.2f}",
            *_beside(stage.seconds.median, stage.floor),
            stage.bound,
        )
    total = sum(stage.seconds.median for stage in report.stages)
    floor = sum(stage.floor for stage in report.stages)
    yield "sum", f"{1e3 * total:.2f}", "", f"{1e3 * floor:.2f}", *_beside(total, floor), ""
    whole = _cells(report.whole, 1e3, ".2f")
    yield "bytes to labels", *whole, "", *_beside(report.whole.median, floor), "measured in one go"


def _beside(seconds: float, floor: float) -> tuple[str, str]:
    """How many times the floor a time is, and which share of the best speed is reached."""
    return f"{seconds / floor:.1f}", f"{floor / seconds:.0%}"


def stage_bars(report: StageReport) -> list[str]:
    """One line a stage, its bar beginning where the last one ended."""
    total = sum(stage.seconds.median for stage in report.stages)
    lines, before = [], 0.0
    for stage in report.stages:
        seconds = stage.seconds.median
        begin, end = (round(_BAR_WIDTH * t / total) for t in (before, before + seconds))
        bar = " " * begin + ("█" * (end - begin) or "▏")
        share = seconds / total
        lines.append(f"{stage.name:9}{bar:{_BAR_WIDTH + 1}} {1e3 * seconds:6.2f} ms {share:4.0%}")
        before += seconds
    return lines
