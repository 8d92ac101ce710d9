"""`python -m trainer reproduce speed` as a whole, in the smallest sizes."""

import json
import os
from pathlib import Path

import pytest
from PIL import Image

from tests.support import bundles
from tests.trainer.bench.sizes import TINY
from trainer.bench import server_comparison
from trainer.bench.curves import CURVES
from trainer.bench.engine_bench import set_up_engine_bench
from trainer.bench.engine_figures import ENGINE_FIGURES
from trainer.bench.machine import pinned, separate_cores
from trainer.bench.run import GOALS, SpeedReport, _measure_service
from trainer.bench.service_figures import SERVICE_FIGURES
from trainer.bench.settings import BenchSettings
from trainer.cli import main


def options(settings: BenchSettings) -> list[str]:
    """The settings as a person types them."""
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in settings]
    return [word for pair in pairs for word in pair]


def test_command_measures_every_figure_or_fails_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_comparison, "PEERS", {})  # they have a test of their own
    pytest.importorskip("cv2", reason="needs opencv of the extra bench, absent here")
    pytest.importorskip("spams", reason="needs spams-bin of the extra bench, absent here")
    out, served = tmp_path / "out", tmp_path / "served"
    bundles.write_model(served)
    command = ["reproduce", "speed", "--data", str(tmp_path / "nowhere"), "--out", str(out)]
    command += ["--served", str(served)]
    with pinned(separate_cores(1)):  # which is too little for some figures, and always named
        code = main([*command, *options(TINY), "--json", "--markdown", str(out / "page.md")])
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document == json.loads((out / "bench.json").read_text())
    assert set(GOALS) == {*document["missing"], *(set(document) & set(GOALS))}
    assert all(document[name] > 0 for name in set(document) & set(ENGINE_FIGURES))
    assert set(ENGINE_FIGURES) & set(document["missing"]) == {"scaling_2", "threads_2"}
    assert document["missing"]["scaling_2"] == "1 core is allowed here, expected at least 2"
    assert "error: not measured: scaling_2, threads_2" in printed.err
    assert code == 1
    assert set(document["servers"]) == {server_comparison.OURS}
    assert set(document["spread"]) == set(document) & set(GOALS)
    assert set(document["curves"]) == set(CURVES)
    names = [stage["name"] for stage in document["stages"]["stages"]]
    assert names == ["decode", "sift", "directions", "route", "code", "pool", "classify"]
    with Image.open(out / "bench.png") as picture:
        assert picture.format == "PNG"
    assert (out / "page.md").read_text().startswith("## Speed")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores, one is allowed here")
@pytest.mark.parametrize("name", ["scaling_2", "threads_2"])
def test_two_cores_are_compared_with_one(tmp_path: Path, name: str) -> None:
    bench = set_up_engine_bench(tmp_path / "nowhere", tmp_path / "models", tmp_path, TINY)
    figure = ENGINE_FIGURES[name].measure(bench)
    assert figure.spread.lowest > 0
    assert len(figure.seconds) == 2


def test_a_service_that_does_not_start_costs_its_figures_only(tmp_path: Path) -> None:
    report = SpeedReport(TINY, {}, ())
    bench = set_up_engine_bench(tmp_path / "nowhere", tmp_path / "models", tmp_path, TINY)
    _measure_service(bench, tmp_path / "nowhere", report)
    assert set(report.missing) == {*SERVICE_FIGURES, "servers"}
    assert all("service did not start: " in reason for reason in report.missing.values())
