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
from trainer.bench.engine_figures import ENGINE_FIGURES
from trainer.bench.machine import pinned, separate_cores
from trainer.bench.run import GOALS
from trainer.bench.settings import BenchSettings
from trainer.cli import main


def options(settings: BenchSettings) -> list[str]:
    """The settings as a person types them."""
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in settings]
    return [word for pair in pairs for word in pair]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores, one is allowed here")
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
    code = main([*command, *options(TINY), "--json", "--markdown", str(out / "page.md")])
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document == json.loads((out / "bench.json").read_text())
    assert set(GOALS) == {*document["missing"], *(set(document) & set(GOALS))}
    assert all(document[name] > 0 for name in set(document) & set(ENGINE_FIGURES))
    assert set(document["servers"]) == {server_comparison.OURS}
    assert set(document["spread"]) == set(document) & set(GOALS)
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
