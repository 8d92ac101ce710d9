"""What a run measured as tables of text, for the terminal and for RESULTS.md alike."""

from collections.abc import Iterator
from dataclasses import dataclass

from trainer.reproduce.speed.curves import Point
from trainer.reproduce.speed.figures import FIGURES, Goal
from trainer.reproduce.speed.run import SpeedReport
from trainer.reproduce.speed.stages import Rates, StageReport

__all__ = ["Table", "stage_bars", "tables"]

_BAR_WIDTH = 40
_WORDS = ("paper", "verdict", "the floor is")

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


def _figure_row(report: SpeedReport, name: str, goal: Goal) -> tuple[str, ...]:
    measured = report.figures.get(name)
    value = "-" if measured is None else _number(measured.value)
    least, aim = (_number(limit) for limit in (goal.floor, goal.aim))
    return f"{name}: {goal.title}", value, least, aim, goal.paper, _verdict(report, name, goal)


def _verdict(report: SpeedReport, name: str, goal: Goal) -> str:
    if name not in report.figures:
        return "missing"
    value = report.figures[name].value
    if goal.floor is not None and value < goal.floor:
        return "short"
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
