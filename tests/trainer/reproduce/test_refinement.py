"""The learned tree beside the plain one and OMP, measured on drawn images."""

import json
from pathlib import Path

import pytest

from trainer.cli import main

pytest.importorskip("spams", reason="needs spams-bin of the extra bench, absent here")

SMALL = ["--samples", "6000", "--held-out", "3000", "--depth", "5", "--atoms", "32"]


def _arguments(images: Path) -> list[str]:
    command = ["reproduce", "refinement", "--data", str(images), "--train-per-class", "8"]
    return [*command, *SMALL, "--nonzeros", "3", "--iterations", "2", "--refinements", "1"]


def test_refined_tree_lies_between_the_plain_one_and_omp(
    drawn_images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*_arguments(drawn_images), "--json"]) == 0
    errors = json.loads(capsys.readouterr().out)
    assert errors["omp"] < errors["refined_tree"] < errors["plain_tree"]


def test_share_of_the_gap_is_printed(
    drawn_images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_arguments(drawn_images)) == 0
    assert "of the gap between tree and OMP" in capsys.readouterr().out


def test_a_split_without_test_images_is_refused(
    drawn_images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*_arguments(drawn_images), "--train-per-class", "12"]) == 1
    assert "no images beyond 12 a class" in capsys.readouterr().err
