"""`fit` leaves a report beside its bundle, and `report` makes it again."""

import json
import logging
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from service.engine import Engine
from service.engine.bundle import MANIFEST_FILE, TENSORS_FILE
from service.examples import shapes
from service.repository import Repository, survey
from tests.support.html_pages import Element, parse
from tests.support.training import SMALL
from trainer.cli import _parser, main
from trainer.config import FitConfig
from trainer.page.document import REPORT_FILE
from trainer.repeat import recorded_command


def _page(path: Path) -> Element:
    return parse(path.read_text("utf-8"))


def _copied(bundle: Path, target: Path) -> Path:
    """A version folder of its own, without a report."""
    shutil.copytree(bundle, target)
    (target / REPORT_FILE).unlink()
    return target


def test_a_report_does_not_disturb_the_model_repository(
    trained_bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = _copied(trained_bundle, tmp_path / "models" / "drawn" / "1")
    before = survey(tmp_path / "models")
    (copy / REPORT_FILE).write_text("anything", "utf-8")
    assert survey(tmp_path / "models") == before
    with caplog.at_level(logging.WARNING):
        found = Repository.load(tmp_path / "models")
    assert (len(found.models), caplog.messages) == (1, [])
    Engine.load(copy)


def test_report_judges_training_images_on_folds_and_others_by_the_bundle(
    drawn_images: Path, trained_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = _copied(trained_bundle, tmp_path / "drawn" / "1")
    assert main(["report", str(copy), str(drawn_images)]) == 0
    assert capsys.readouterr().out == f"report {copy / REPORT_FILE}\n"
    accuracy = _page(copy / REPORT_FILE).by_id("accuracy").text
    first = _page(trained_bundle / REPORT_FILE).by_id("accuracy").text
    assert "Images that the model was not trained on." in accuracy
    assert "Folds were drawn again" in accuracy
    shown = [text.partition("Figures")[2] for text in (accuracy, first)]
    assert shown[0] == shown[1]  # the same seed gives the same folds


def test_report_on_other_files_says_that_nobody_knows_whether_they_trained(
    trained_bundle: Path, tmp_path: Path
) -> None:
    others = shapes.write_dataset(tmp_path / "others", per_class=2)
    out = tmp_path / "page.html"
    assert main(["report", str(trained_bundle), str(others), "--out", str(out)]) == 0
    accuracy = _page(out).by_id("accuracy").text
    assert "It cannot be told which of these images the model was trained on." in accuracy
    assert "Recorded in the bundle when it was trained" in accuracy  # its folds


def test_report_refuses_a_target_that_cannot_be_written_before_it_reads_images(
    drawn_images: Path, trained_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["report", str(trained_bundle), str(drawn_images), "--out"]
    assert main([*command, str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder, expected a file" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "missing" / "page.html")]) == 2
    assert "is not a writable folder" in capsys.readouterr().err


def test_a_fit_without_a_report_writes_the_bundle_alone(drawn_images: Path, tmp_path: Path) -> None:
    out = tmp_path / "drawn"
    assert main(["fit", str(drawn_images), "--out", str(out), *SMALL, "--no-report"]) == 0
    assert sorted(path.name for path in (out / "1").iterdir()) == [MANIFEST_FILE, TENSORS_FILE]


def test_a_fit_whose_report_is_interrupted_has_its_bundle_and_says_so(
    drawn_images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "drawn"
    flush = os.fsync

    def interrupt_the_report(number: int) -> None:
        if Path(f"/proc/self/fd/{number}").readlink().parent == out / "1":
            raise KeyboardInterrupt
        flush(number)

    monkeypatch.setattr(os, "fsync", interrupt_the_report)
    with caplog.at_level(logging.WARNING):
        assert main(["fit", str(drawn_images), "--out", str(out), *SMALL]) == 0
    assert f"interrupted: {out / '1'} is complete, but has no report" in caplog.messages
    assert f"bundle {out / '1'}\nmean per-class accuracy" in capsys.readouterr().out
    assert sorted(path.name for path in (out / "1").iterdir()) == [MANIFEST_FILE, TENSORS_FILE]
    Engine.load(out / "1")


@pytest.mark.parametrize("given", [SMALL, (*SMALL, "--exclude", "a b", "--exclude", "c;d")])
def test_the_command_of_a_bundle_gives_its_settings_again(
    trained_bundle: Path, given: tuple[str, ...]
) -> None:
    manifest = Engine.load(trained_bundle).manifest
    typed = ["fit", "my photos", "--out", "models/x", *given]
    config = FitConfig.of(FitConfig.given(_parser().parse_args(typed)))
    manifest.provenance["settings"] = config.to_json()
    command = recorded_command(manifest, Path("my photos"), None, Path("models/x"))
    words = shlex.split(command.text)
    assert words[:3] == ["python", "-m", "trainer"]
    options = _parser().parse_args(words[3:])
    assert (options.images, options.out) == (Path("my photos"), Path("models/x"))
    assert FitConfig.of(FitConfig.given(options)) == config


def test_the_command_of_a_bundle_names_the_model_that_it_came_from(trained_bundle: Path) -> None:
    manifest = Engine.load(trained_bundle).manifest
    manifest.provenance["from_bundle"] = {"name": "first", "version": 3, "digest": "…"}
    command = recorded_command(manifest, Path("photos"), Path("labels.csv"), Path("models/x"))
    options = _parser().parse_args(shlex.split(command.text)[3:])
    assert options.from_bundle == Path("models/first/3")
    assert options.labels == Path("labels.csv")
    assert FitConfig.given(options) == {"train_per_class": 8}


def test_fit_tells_everything_as_json_and_inspect_the_worst_of_it(
    drawn_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "drawn"
    assert main(["fit", str(drawn_images), "--out", str(out), *SMALL, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["report"] == str(out / "1" / REPORT_FILE)
    folds = told["folds"]
    assert sum(each["images"] for each in folds["classes"].values()) == folds["n_test"]
    assert all(each["recall_interval"] for each in folds["classes"].values())
    assert main(["inspect", str(out / "1")]) == 0
    printed = capsys.readouterr().out
    assert "weakest classes: " in printed
    assert "predicted" not in printed  # the counts of every class are for --json
