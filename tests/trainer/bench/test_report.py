"""What a run found, as text, as a section of RESULTS.md, as JSON and as a picture."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tests.trainer.bench.sizes import TINY
from trainer.bench.curves import Point
from trainer.bench.goals import Figure, Goal
from trainer.bench.plot import draw_speed
from trainer.bench.report import markdown_section, speed_text
from trainer.bench.run import SpeedReport
from trainer.bench.server_comparison import ServerResult
from trainer.bench.service_figures import SERVICE_FIGURES
from trainer.bench.spread import Spread
from trainer.bench.stages import Rates, Stage, StageReport
from trainer.bench.tables import stage_bars
from trainer.tables import in_place_of_section


def steady(value: float) -> Spread:
    return Spread.of([value])


def report() -> SpeedReport:
    """A report with two figures that do well, one that is missed and one that is missing."""
    noisy = Spread(0.001, 0.0009, 0.002, 7)
    stages = (
        Stage("decode", noisy, 0.0005),
        Stage("route", steady(0.003), 0.001, 4_000_000, 8_000_000),
    )
    depths = [
        Point(2, {"coding": Spread(0.001, 0.0009, 0.002, 7)}),
        Point(4, {"coding": steady(0.002)}),
    ]
    server = ServerResult(Spread(300, 250, 350, 7), steady(20), steady(30), 0, 0.1)
    front_end = {"workers_ms": 5.5, "generator_ms": 0.1}
    return SpeedReport(
        TINY,
        {"cpu": "slide rule", "load_average": 0.0},
        ("berkeley",),
        figures={
            "coding_k_independence": Figure(steady(0.97), {"few_atoms": steady(0.97)}),
            # Its luckiest round would reach what it must.
            "scaling_2": Figure(Spread(1.2, 1.1, 1.9, 7), {"alone": steady(0.2)}),
            "front_end_ms": Figure(Spread(0.4, 0.3, 0.7, 7), {}, front_end),
        },
        curves={"depth": depths},
        stages=StageReport(stages, steady(0.005), Rates(4e9, 8e9)),
        servers={"Leafcode": server},
        missing={"threads_2": "1 core is allowed here"},
    )


def row(name: str) -> str:
    (found,) = [line for line in speed_text(report()).splitlines() if line.strip().startswith(name)]
    return found


def test_figures_are_shown_with_their_spread_and_judged_by_their_median() -> None:
    figures = {name: re.split(r"  +", row(f"{name}:").strip())[1:] for name in report().figures}
    assert figures == {
        "coding_k_independence": ["0.97", "-", "≥ 0.93", "0.97", ".94 (pipeline)", "aim reached"],
        "scaling_2": ["1.2", "1.1 – 1.9", "≥ 1.85", "1.95", "-", "missed"],
        "front_end_ms": ["0.4", "0.3 – 0.7", "≤ 0.6", "0.45", "aim reached"],
    }


def test_costs_of_workers_and_generator_stand_beside_that_of_the_front_end() -> None:
    text = " ".join(speed_text(report()).split())
    assert "0.40 ms in the front end, 5.50 ms in the workers, and 0.10 ms in the load" in text


def test_times_have_their_spread_too() -> None:
    assert re.split(r"  +", row("decode    ").strip())[:3] == ["decode", "1.00", "0.90 – 2.00"]
    assert re.split(r"  +", row("2  ").strip()) == ["2", "1.00", "0.90 – 2.00"]
    assert re.split(r"  +", row("Leafcode  ").strip())[1:3] == ["300", "250 – 350"]


@pytest.mark.parametrize(
    ("value", "missed", "share"), [(0.3, "", 2), (0.5, "", 1.2), (0.75, "over 0.6", 0.8)]
)
def test_less_is_better_below_a_ceiling(value: float, missed: str, share: float) -> None:
    goal = SERVICE_FIGURES["front_end_ms"]
    assert (goal.missed(value), goal.reaches_aim(value)) == (missed, value <= 0.45)
    assert goal.share(value) == pytest.approx(share)


def test_a_value_that_is_no_number_misses_every_limit() -> None:
    nan = float("nan")
    assert Goal(lambda _: Figure(steady(nan)), "", floor=1).missed(nan)
    assert Goal(lambda _: Figure(steady(nan)), "", ceiling=1).missed(nan)


def test_picture_has_figures_stages_and_curves(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib of the extra bench, absent here")
    draw_speed(replace(report(), stages=None), tmp_path / "bench.png")
    with Image.open(tmp_path / "bench.png") as picture:
        assert picture.format == "PNG"


def test_verdict_says_what_fell_short_and_what_is_missing() -> None:
    lines = speed_text(report()).splitlines()
    assert "scaling_2 is 1.2 (1.1 – 1.9), short of 1.85." in lines
    assert "threads_2 is missing: 1 core is allowed here." in lines
    assert "made here because they are absent: images of berkeley" in lines[0]


def test_bars_of_the_stages_begin_where_the_last_one_ended() -> None:
    stages = report().stages
    assert stages is not None
    first, second = stage_bars(stages)
    assert first.count("█") == 10
    assert second.count("█") == 30
    assert second.index("█") == first.rindex("█") + 1


def test_section_takes_the_place_of_the_old_one_and_nothing_else() -> None:
    section = markdown_section(report())
    page = "# Results\n\n## Training\n\nfast\n"
    added = in_place_of_section(page, section)
    assert added == f"{page}\n{section}"
    before_another = added + "\n## Tree\n\ntall\n"
    changed = markdown_section(replace(report(), missing={}))
    assert in_place_of_section(before_another, changed) == f"{page}\n{changed}\n## Tree\n\ntall\n"


def test_json_has_every_figure_under_its_own_name() -> None:
    document = json.loads(json.dumps(report().to_json()))
    assert document["scaling_2"] == 1.2
    assert document["spread"]["scaling_2"] == {
        "median": 1.2,
        "lowest": 1.1,
        "highest": 1.9,
        "rounds": 7,
    }
    assert document["short"] == ["scaling_2"]
    assert document["missing"] == {"threads_2": "1 core is allowed here"}
    assert document["goals"]["coding_vs_gemm"] == {"floor": 15, "aim": 18, "paper": "8.6"}
