"""The cost of training, measured on drawn images: four sizes, errors that fall."""

import json
from pathlib import Path

import pytest

from trainer.cli import main


def test_command_measures_four_sizes(
    drawn_images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "training", "--data", str(drawn_images), "--samples", "8000"]
    small = ["--depth", "5", "--atoms", "32", "--nonzeros", "3", "--iterations", "2"]
    assert main([*command, *small, "--json"]) == 0
    costs = json.loads(capsys.readouterr().out)["costs"]
    sizes = [cost["n_descriptors"] for cost in costs]
    assert sizes == [sizes[3] // 8, sizes[3] // 4, sizes[3] // 2, sizes[3]]
    for cost in costs:
        assert cost["relative_errors"][-1] < cost["relative_errors"][0]
        assert cost["peak_gigabytes"] > 0
