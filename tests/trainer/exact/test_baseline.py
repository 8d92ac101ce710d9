"""The baseline end to end: OMP in place of the tree, from Python and as a command."""

import importlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.training import SIZES
from trainer.cli import main
from trainer.config import FitConfig
from trainer.data.dataset import scan
from trainer.exact.baseline import evaluate_omp

pytest.importorskip("spams", reason="the extra bench (spams-bin) is not installed")


@pytest.mark.parametrize("kind", ["spams", "ksvd"])
def test_drawn_classes_are_told_apart(
    drawn_images: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    options = ("--train-per-class", "8", "--dictionary", kind, "--folds", "2", "--json")
    assert main(["baseline", str(drawn_images), *SIZES, *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["coder"] == "omp"
    assert printed["dictionary"] == kind
    assert printed["mean_class_accuracy"] > 0.8
    assert (printed["n_test"], printed["n_classes"]) == (16, 4)


def test_figures_for_people_name_coder_and_classes(
    drawn_images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--train-per-class", "8", "--dictionary", "ksvd")
    assert main(["baseline", str(drawn_images), *SIZES, *options]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("OMP with a dictionary by ksvd\nmean per-class accuracy")
    assert "16 images of 4 classes" in printed
    assert "stripes" in printed


def test_a_given_dictionary_is_used(drawn_images: Path) -> None:
    split = scan(drawn_images).split(8, 0)
    dictionary = np.abs(np.random.default_rng(0).normal(size=(40, 128))).astype(np.float32)
    evaluation = evaluate_omp(split, FitConfig(nonzeros=3, folds=2), dictionary)
    assert evaluation.mean_class_accuracy > 0.5
    tested = {each.label for each in evaluation.confusion.tested}
    assert tested == {"cross", "disc", "square", "stripes"}


def test_settings_come_from_the_file_of_a_fit(
    drawn_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.toml"
    lines = ("atoms = 32", "nonzeros = 2", "samples = 2000", "train_per_class = 11", "depth = 3")
    path.write_text("\n".join(lines), "utf-8")
    options = ("--config", str(path), "--dictionary", "ksvd", "--json")
    assert main(["baseline", str(drawn_images), *options]) == 0
    assert json.loads(capsys.readouterr().out)["n_test"] == 4


def test_unreadable_files_are_named_and_the_rest_goes_on(
    drawn_images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "drawn"
    shutil.copytree(drawn_images, folder)
    for path in sorted((folder / "disc").iterdir())[::3]:
        path.write_bytes(b"no image")
    options = ("--train-per-class", "6", "--dictionary", "ksvd", "--json")
    assert main(["baseline", str(folder), *SIZES, *options]) == 0
    assert json.loads(capsys.readouterr().out)["n_classes"] == 4
    assert "unreadable file" in caplog.text


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "train_per_class is not set"),
        (("--train-per-class", "12"), 1, "has no images beyond 12 a class"),
        (("--train-per-class", "8", "--atoms", "9999"), 1, "fewer than the 9999 atoms"),
        (("--train-per-class", "8", "--exclude", "lion"), 1, "no sub-folder lion"),
        (
            ("--train-per-class", "8", *(f"--exclude={c}" for c in ("disc", "cross", "square"))),
            1,
            "has one class (stripes)",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(
    drawn_images: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    assert main(["baseline", str(drawn_images), *SIZES, *options]) == code
    assert message in capsys.readouterr().err


def test_a_missing_package_is_named_before_any_image_is_read(
    drawn_images: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    assert main(["baseline", str(drawn_images), *SIZES, "--train-per-class", "8"]) == 1
    assert "pip install 'leafcode[bench]'" in capsys.readouterr().err
