"""The benchmark: its stopwatch by a clock that tests wind up, the rest on tiny models."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.engine import Engine
from tests import bundles
from trainer.bench import server_comparison
from trainer.bench.curves import CURVES
from trainer.bench.engine_figures import FIGURES
from trainer.bench.goals import Figure
from trainer.bench.machine import pinned, separate_cores
from trainer.bench.models import Models, draw_descriptors
from trainer.bench.peers import opencv_sift
from trainer.bench.photographs import find_photographs
from trainer.bench.report import in_place_of_section, markdown_section, speed_text
from trainer.bench.run import GOALS, SpeedReport
from trainer.bench.settings import ModelSize, SpeedSettings
from trainer.bench.stages import Rates, Stage, StageReport
from trainer.bench.stopwatch import Patience, side_by_side
from trainer.bench.tables import stage_bars
from trainer.cli import main
from trainer.errors import TrainingError

TINY = SpeedSettings(
    samples=3000,
    vectors=200,
    depth=4,
    atoms=32,
    many_atoms=64,
    nonzeros=3,
    labels=3,
    photographs=1,
    sklearn_vectors=20,
    rounds=1,
    milliseconds=1,
    width=96,
    height=64,
    made=6,
    requests=6,
    load_seconds=1,
)


def options(settings: SpeedSettings) -> list[str]:
    """The settings as a person types them."""
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in vars(settings).items()]
    return [word for pair in pairs for word in pair]


class Clock:
    """Time passes only when a workload says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def workload(self, name: str, durations: Iterator[float]) -> Callable[[], None]:
        def run() -> None:
            self.calls.append(name)
            self.now += next(durations)

        return run


def test_workloads_take_turns_after_one_call_that_does_not_count() -> None:
    clock = Clock()
    workloads = {
        "a": clock.workload("a", iter([1, 5, 3, 4])),
        "b": clock.workload("b", iter([1, 2, 9, 2.5])),
    }
    best = side_by_side(workloads, Patience(rounds=3, seconds=0, turn=0), clock)
    assert clock.calls == ["a", "b"] * 4
    assert best == {"a": 3, "b": 2}


def test_rounds_go_on_until_the_time_is_up() -> None:
    clock = Clock()
    workloads = {
        "a": clock.workload("a", iter([1.0] * 9)),
        "b": clock.workload("b", iter([1.0] * 9)),
    }
    side_by_side(workloads, Patience(rounds=1, seconds=5, turn=0), clock)
    assert clock.calls == ["a", "b"] * 4


def test_a_short_workload_runs_again_within_its_turn() -> None:
    clock = Clock()
    workloads = {
        "short": clock.workload("short", iter([4, 4, 3, 2, 1.5])),
        "long": clock.workload("long", iter([9, 9])),
    }
    best = side_by_side(workloads, Patience(rounds=1, seconds=0, turn=8), clock)
    assert clock.calls == ["short", "long", "short", "short", "short", "long"]
    assert best == {"short": 2, "long": 9}


def test_cores_are_separate_and_pinning_ends_with_its_block() -> None:
    allowed = os.sched_getaffinity(0)
    (core,) = separate_cores(1)
    with pinned([core]):
        assert os.sched_getaffinity(0) == {core}
        with pytest.raises(TrainingError, match="expected at least 2"):
            separate_cores(2)
    assert os.sched_getaffinity(0) == allowed


def test_absent_data_sets_are_replaced_by_images_of_their_size(tmp_path: Path) -> None:
    found = find_photographs(tmp_path / "nowhere", tmp_path / "scratch", TINY)
    assert found.made == ("berkeley", "caltech101")
    assert len(found.training) == 5
    assert set(found.training).isdisjoint(found.measured)
    with Image.open(found.measured[0]) as picture:
        assert (picture.format, picture.size) == ("JPEG", (TINY.width, TINY.height))
    with Image.open(found.caltech[0]) as picture:
        assert max(picture.size) == 300


def test_images_that_are_there_are_used(drawn_images: Path, tmp_path: Path) -> None:
    (tmp_path / "caltech101").symlink_to(drawn_images)
    found = find_photographs(tmp_path, tmp_path / "scratch", TINY)
    assert found.made == ("berkeley",)
    assert found.caltech[0].is_relative_to(tmp_path / "caltech101")


def test_a_kept_model_is_loaded_again_and_a_smaller_tree_is_the_top_of_it(tmp_path: Path) -> None:
    photographs = find_photographs(tmp_path / "nowhere", tmp_path / "scratch", TINY)
    models = Models(tmp_path / "kept", photographs.training, TINY)
    whole, top = models.load(), models.load(ModelSize(2, TINY.atoms, TINY.nonzeros))
    again = Models(tmp_path / "kept", photographs.training, TINY)
    assert again.load().manifest.digest == whole.manifest.digest
    vectors = draw_descriptors(photographs.measured, 50, seed=1)
    np.testing.assert_array_equal(whole.encode(vectors).leaf_ids >> 2, top.encode(vectors).leaf_ids)
    other = Models(tmp_path / "kept", photographs.training, replace(TINY, seed=1))
    assert other.bundle() != again.bundle()


def test_opencv_describes_the_patches_that_we_do(trained_bundle: Path) -> None:
    pytest.importorskip("cv2", reason="needs opencv of the extra bench, absent here")
    pixels = np.zeros((40, 50), np.uint8)
    pixels[:, 30:] = 200  # one edge: seen by the patches that reach it, and by no other
    theirs = np.asarray(opencv_sift(pixels)()).reshape(11, 16, 128)
    ours = Engine.load(trained_bundle).describe(np.float32(1 / 255) * pixels)
    assert ours.shape == theirs.shape
    # OpenCV smooths first and looks beyond the patch: it sees an edge a few pixels further.
    assert (theirs.max(axis=2) > 0)[ours.max(axis=2) > 0].all()
    assert not theirs[:, 0].any()
    assert not ours[:, 0].any()


def report() -> SpeedReport:
    """A report with one figure that does well, one that falls short and one that is missing."""
    stages = (Stage("decode", 0.001, 0.0005), Stage("route", 0.003, 0.001, 4_000_000, 8_000_000))
    return SpeedReport(
        TINY,
        {"cpu": "slide rule", "load_average": 0.0},
        ("berkeley",),
        figures={
            "coding_k_independence": Figure(0.97, {"few_atoms": 0.97, "many_atoms": 1.0}),
            "scaling_2": Figure(1.2, {"alone": 0.2, "together": 0.167}),
        },
        curves={"depth": [{"depth": 2, "coding": 0.001}, {"depth": 4, "coding": 0.002}]},
        stages=StageReport(stages, 0.005, Rates(4e9, 8e9)),
        missing={"threads_2": "1 core is allowed here"},
    )


def test_table_says_what_fell_short_and_what_is_missing() -> None:
    lines = speed_text(report()).splitlines()
    (good,) = [line for line in lines if line.strip().startswith("coding_k_independence")]
    (short,) = [line for line in lines if line.strip().startswith("scaling_2:")]
    assert "aim reached" in good
    assert short.endswith("short")
    assert "scaling_2 is 1.2, short of 1.85." in lines
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
    assert document["short"] == ["scaling_2"]
    assert document["missing"] == {"threads_2": "1 core is allowed here"}
    assert document["goals"]["coding_vs_gemm"] == {"floor": 9, "aim": 12, "paper": "8.6"}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores, one is allowed here")
def test_command_measures_every_figure_or_fails_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_comparison, "RIVALS", {})  # they have a test of their own
    pytest.importorskip("cv2", reason="needs opencv of the extra bench, absent here")
    pytest.importorskip("spams", reason="needs spams-bin of the extra bench, absent here")
    out, served = tmp_path / "out", tmp_path / "served"
    bundles.write_model(served)
    command = ["reproduce", "speed", "--data", str(tmp_path / "nowhere"), "--out", str(out)]
    command += ["--served", str(served)]
    code = main([*command, *options(TINY), "--json", "--markdown", str(out / "page.md")])
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document == json.loads((out / "bench.json").read_text())
    assert set(GOALS) == {*document["missing"], *(set(document) & set(GOALS))}
    assert all(document[name] > 0 for name in set(document) & set(FIGURES))
    assert set(document["servers"]) == {server_comparison.OURS}
    assert code == (1 if document["missing"] else 0)
    assert set(document["curves"]) == set(CURVES)
    names = [stage["name"] for stage in document["stages"]["stages"]]
    assert names == ["decode", "sift", "directions", "route", "code", "pool", "classify"]
    with Image.open(out / "bench.png") as picture:
        assert picture.format == "PNG"
    assert (out / "page.md").read_text().startswith("## Speed")


def test_command_fails_and_names_what_one_core_cannot_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cv2", reason="needs opencv of the extra bench, absent here")
    nowhere = str(tmp_path / "nowhere")
    command = ["reproduce", "speed", "--data", nowhere, "--out", str(tmp_path)]
    command += ["--served", nowhere]
    with pinned(separate_cores(1)):
        assert main([*command, *options(TINY)]) == 1
    printed = capsys.readouterr()
    assert "scaling_2 is missing: 1 core is allowed here, expected at least 2." in printed.out
    assert "service_vs_engine is missing: service did not start: " in printed.out
    assert "error: not measured: " in printed.err
    assert "scaling_2" not in set(json.loads((tmp_path / "bench.json").read_text()))
