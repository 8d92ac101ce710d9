"""The experiment on explanations, small."""

import json
from pathlib import Path

import numpy as np
import pytest

from trainer.cli import main
from trainer.reproduce.explanations import ExplanationSettings, measure_explanations


def test_explanations_add_up_and_find_what_counts(
    trained_bundle: Path, drawn_images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ExplanationSettings(images=6, deletions=3, steps=2)
    report = measure_explanations(trained_bundle, drawn_images, settings)
    assert (report.n_images, report.n_curves) == (6, 3)
    assert report.largest_difference < 1e-4
    names = ["nothing", "explanation", "random", "occlusion 2x2", "occlusion 4x4", "occlusion 8x8"]
    assert list(report.curves) == list(report.deviations) == names
    assert np.isfinite(list(report.curves.values())).all()
    assert report.curves["explanation"] < report.curves["random"] < report.curves["nothing"]
    arguments = ["--data", str(drawn_images), "--images", "6", "--deletions", "0", "--json"]
    main(["reproduce", "explanations", "--bundle", str(trained_bundle), *arguments])
    assert json.loads(capsys.readouterr().out)["n_images"] == 6
