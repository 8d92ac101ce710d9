"""`reproduce solvers` on a few drawn images."""

import json
from pathlib import Path

import pytest

from trainer.cli import main
from trainer.reproduce import solvers as solvers_module


def test_all_solvers_find_about_the_same(
    drawn_images: Path,
    trained_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(solvers_module, "_MODEL", trained_bundle)  # it has fewer features
    command = ["reproduce", "solvers", "--data", str(drawn_images), "--images", "30"]
    assert main([*command, "--tested", "10", "--json"]) == 0
    solvers = json.loads(capsys.readouterr().out)["solvers"]
    assert len(solvers) == 5
    assert min(each["excess"] for each in solvers) == 0
    excess = {each["name"]: each["excess"] for each in solvers}
    assert excess.pop("scikit-learn SGDClassifier, 10 epochs") < 10  # not there yet
    assert max(excess.values()) < 0.02
    assert min(each["accuracy"] for each in solvers) >= 0.5


def test_too_few_images_are_told(drawn_images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "solvers", "--data", str(drawn_images)]) == 1
    assert "expected at least 4000" in capsys.readouterr().err
