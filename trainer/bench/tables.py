"""What a run measured as tables of text, for the terminal and for RESULTS.md alike."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainer.bench.curves import Point
from trainer.bench.engine_figures import FIGURES
from trainer.bench.goals import Figure, Goal
from trainer.bench.run import SpeedReport
from trainer.bench.server_comparison import Conduct
from trainer.bench.service_figures import SERVICE_FIGURES
from trainer.bench.stages import Rates, StageReport

__all__ = ["Table", "stage_bars", "tables"]

_BAR_WIDTH = 40
_WORDS = ("paper", "must be", "verdict", "the floor is", "recovered")

# Seconds in the paper, a laptop of 2011 with four cores, by number of atoms (its largest
# dictionary has 8092).
_PAPER_PIPELINE = {1024: "0.145", 2048: "0.147", 4096: "0.150", 8192: "0.155"}


@dataclass(frozen=True)
class Table:
    """Rows of as many cells as the header has; columns of words align left."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""

    def aligns_left(self, column: int) -> bool:
        """Words, as against numbers."""
        return not column or self.header[column] in _WORDS


def tables(report: SpeedReport) -> Iterator[Table]:
    """Everything that was measured, what matters most first."""
    yield Table(
        "Side by side",
        ("figure", "ours", "at least", "aim", "paper", "verdict"),
        [_figure_row(report, name, goal) for name, goal in FIGURES.items()],
    )
    yield Table(
        "Service",
        ("figure", "ours", "must be", "verdict"),
        [_service_row(report, name, goal) for name, goal in SERVICE_FIGURES.items()],
        _service_facts(report),
    )
    if report.servers:
        yield Table(
            "The same engine behind other servers",
            ("server", "images a second", "p50 ms", "p99 ms", "failed of 40", "recovered"),
            [_server_row(name, conduct) for name, conduct in report.servers.items()],
            "Eight clients, the same images in turns, the best of three rounds. Then forty "
            "requests, in the middle of which one worker is killed by SIGKILL: how many are "
            "not answered, and how long it takes until all workers are back and answer.",
        )
    yield Table("Seconds beside the paper's", ("", "ours", "paper"), list(_time_rows(report)))
    if report.stages:
        yield Table(
            "Stages of one image and their floors",
            ("stage", "ms", "floor ms", "times the floor", "the floor is"),
            list(_stage_rows(report.stages)),
            _floors(report.stages.rates),
        )
    for name, points in report.curves.items():
        columns = [key for key in points[0] if key != name]
        header = (name, *(f"{_title(column)} ms" for column in columns))
        rows = [
            (f"{int(point[name])}", *(f"{1e3 * point[key]:.2f}" for key in columns))
            for point in points
        ]
        yield Table(f"Growth by {name}", header, rows, _growth(name, points))


def _growth(name: str, points: list[Point]) -> str:
    """How much longer the last point takes than the first."""
    first, last = points[0], points[-1]
    factors = [f"{_title(key)} {last[key] / first[key]:.2g} times" for key in first if key != name]
    return f"{last[name] / first[name]:.2g} times the {name}: {', '.join(factors)} as long."


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


def _service_row(report: SpeedReport, name: str, goal: Goal[Any]) -> tuple[str, ...]:
    measured = report.figures.get(name)
    value = "-" if measured is None else _number(measured.value)
    limit = f"≤ {_number(goal.ceiling)}" if goal.floor is None else f"≥ {_number(goal.floor)}"
    verdict = _verdict(report, name, goal)
    return f"{name}: {goal.title}", value, limit, "reached" if verdict == "-" else verdict


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
        yield (
            f"At most {facts['service_per_second']:.0f} images a second over HTTP. CPU a request: "
            f"{facts['worker_ms']:.2f} ms in the workers, {facts['front_ms']:.2f} ms in the front, "
            f"and {facts['generator_ms']:.2f} ms in the load generator, which shares the cores. "
            f"The ratio of the medians is {facts['ratio_of_medians']:.2f}."
        )
    elif name == "service_added_ms":
        yield (
            f"A small JPEG takes {1e3 * seconds['service']:.2f} ms over HTTP and "
            f"{1e3 * seconds['engine']:.2f} ms in the bare engine."
        )
    elif name == "latency_p99_at_70":
        yield (
            f"Without load an image takes {1e3 * seconds['unloaded']:.1f} ms; at 70 % the median "
            f"is {1e3 * seconds['p50']:.1f} ms. The p99 figure is the best of several rounds, in "
            "each of which the throughput that 70 % are taken of and the unloaded median are "
            f"measured just before; their median is {facts['median']:.1f}, and the best with "
            f"arrivals by chance instead of evenly spaced ones {facts['poisson']:.1f}."
        )
    elif name == "goodput_at_200":
        yield f"At 200 % the best round counts too; the median is {facts['median']:.2f}."
    elif name == "memory_growth_at_200":
        yield f"All processes together hold {facts['after_mb']:.0f} MB."


def _server_row(name: str, conduct: Conduct) -> tuple[str, ...]:
    seconds = conduct.recovery_seconds
    return (
        name,
        _number(conduct.per_second),
        _number(conduct.p50_ms),
        _number(conduct.p99_ms),
        str(conduct.failed),
        "never" if seconds is None else f"after {seconds:.1f} s",
    )


def _figure_row(report: SpeedReport, name: str, goal: Goal[Any]) -> tuple[str, ...]:
    measured = report.figures.get(name)
    value = "-" if measured is None else _number(measured.value)
    least, aim = (_number(limit) for limit in (goal.floor, goal.aim))
    return f"{name}: {goal.title}", value, least, aim, goal.paper, _verdict(report, name, goal)


def _verdict(report: SpeedReport, name: str, goal: Goal[Any]) -> str:
    if name not in report.figures:
        return "missing"
    value = report.figures[name].value
    if goal.missed(value):
        return "missed" if goal.ceiling is not None else "short"
    if goal.aim is None:
        return "-"
    return "aim reached" if value >= goal.aim else "below the aim"


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
            yield title, f"{report.figures[name].seconds[side]:.4f}", paper
    for point in report.curves.get("atoms", []):
        atoms = int(point["atoms"])
        paper = _PAPER_PIPELINE.get(atoms, "-")
        yield f"one image to its labels, {atoms} atoms", f"{point['pipeline']:.4f}", paper
    if "caltech_frames_per_second" in report.figures:
        seconds = report.figures["caltech_frames_per_second"].seconds["pipeline"]
        title = f"one image of Caltech 101, {2 * settings.atoms} atoms"
        yield title, f"{seconds:.4f}", "0.031 (four cores)"


def _stage_rows(report: StageReport) -> Iterator[tuple[str, ...]]:
    for stage in report.stages:
        yield (
            stage.name,
            f"{1e3 * stage.seconds:.2f}",
            f"{1e3 * stage.floor:.2f}",
            f"{stage.seconds / stage.floor:.1f}",
            stage.bound,
        )
    total, floor = (
        sum(getattr(stage, name) for stage in report.stages) for name in ("seconds", "floor")
    )
    yield "sum", f"{1e3 * total:.2f}", f"{1e3 * floor:.2f}", f"{total / floor:.1f}", ""
    whole = report.whole
    yield "bytes to labels", f"{1e3 * whole:.2f}", "", f"{whole / floor:.1f}", "measured in one go"


def stage_bars(report: StageReport) -> list[str]:
    """One line a stage, its bar beginning where the last one ended."""
    total = sum(stage.seconds for stage in report.stages)
    lines, before = [], 0.0
    for stage in report.stages:
        begin, end = (round(_BAR_WIDTH * t / total) for t in (before, before + stage.seconds))
        bar = " " * begin + ("█" * (end - begin) or "▏")
        share = stage.seconds / total
        lines.append(
            f"{stage.name:9}{bar:{_BAR_WIDTH + 1}} {1e3 * stage.seconds:6.2f} ms {share:4.0%}"
        )
        before += stage.seconds
    return lines
