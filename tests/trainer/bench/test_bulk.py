"""`reproduce bulk`: predict beside bare engines, in turns."""

import json
from pathlib import Path

import pytest

from tests.support import pictures
from trainer.bench.bulk import BulkResult, Turn
from trainer.cli import main


def test_every_turn_of_predict_is_compared_with_the_engines_before_and_after_it() -> None:
    engines = (Turn(100, 1.0), Turn(300, 3.0), Turn(100, 1.0))
    result = BulkResult(10, 2, engines, (Turn(100, 4.0), Turn(200, 2.0)))
    assert (result.ratio.lowest, result.ratio.highest) == (0.5, 1.0)
    assert (result.cpu_ratio.lowest, result.cpu_ratio.highest) == (0.5, 1.0)
    assert "images a second, predict / bare engines: 0.75 (0.5 to 1)" in result.to_text()


def test_the_command_measures_both_and_rejects_more_processes_than_cores(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(pictures.png(pictures.noise(seed=number)))
    bundle = str(models / "tiny" / "1")
    command = ["reproduce", "bulk", "--bundle", bundle, "--data", str(tmp_path), "--json"]
    assert main([*command, "--rounds", "1", "--processes", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["predict_vs_engine"] < 1  # of three images, most is the start
    assert found["turns"]["images"] == 3
    assert len(found["turns"]["engines"]) == 2
    assert all(turn["rate"] > 0 for turn in found["turns"]["predict"])
    assert main([*command, "--processes", "4096"]) == 1
    assert "expected at least 4096" in capsys.readouterr().err
