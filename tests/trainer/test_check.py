"""`check` on a folder that has everything odd in it, and a fit on the same folder."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from service.engine import Engine
from tests.support.messy_folder import HAS_HEIF, make_messy_folder
from tests.support.training import SMALL
from trainer.cli import main


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_messy_folder(tmp_path_factory.mktemp("messy") / "photos")


@pytest.fixture(scope="module")
def facts(photos: Path) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch, (photos.parent / "facts.json").open("w") as file:
        patch.setattr("sys.stdout", file)
        assert main(["check", str(photos), "--json"]) == 0
    found: dict[str, Any] = json.loads((photos.parent / "facts.json").read_text("utf-8"))
    return found


def test_check_counts_the_images_of_each_class(facts: dict[str, Any]) -> None:
    counts = {label: (c["images"], c["readable"]) for label, c in facts["classes"].items()}
    assert counts == {
        r"caf\xe9": (10, 8 + HAS_HEIF),
        "lonely": (1, 1),
        "squares": (8, 7),
        "кресты": (7, 7),
        "🔵 discs": (12, 9),
    }
    assert facts["images"] == 38
    assert facts["can_be_fitted"]


def test_check_counts_what_is_nested_linked_heic_or_large(facts: dict[str, Any]) -> None:
    assert facts["kinds"] == {"nested": 2, "linked": 2, "heic": 1, "large": 1}


def test_check_names_files_that_cannot_be_read_and_says_why(facts: dict[str, Any]) -> None:
    reasons = {file["path"]: file["reason"] for file in facts["unreadable"]}
    if not HAS_HEIF:
        assert "pip install 'leafcode[heif]'" in reasons.pop(r"caf\xe9/IMG_0001.HEIC")
    assert {name: reason.split(",")[0][:35] for name, reason in reasons.items()} == {
        r"caf\xe9/dot.png": "the image is 8x8 pixels at working ",
        "squares/gone.png": "cannot be read: No such file or dir",
        "🔵 discs/cut.jpg": "the image is damaged or truncated: ",
        "🔵 discs/empty.gif": "the image has no bytes",
        "🔵 discs/text.png": "the 8 bytes are not an image in a f",
    }


def test_check_finds_copies_bursts_and_a_picture_in_two_classes(facts: dict[str, Any]) -> None:
    in_two_classes = ["squares/2.png", "🔵 discs/square.png"]
    assert facts["identical"] == [in_two_classes, ["кресты/0.png", "кресты/copy of 0.png"]]
    assert facts["in_several_classes"] == [in_two_classes]
    assert ["🔵 discs/burst 1.png", "🔵 discs/burst 2.png"] in facts["similar"]


def test_check_names_tiny_images_and_tells_of_imbalance(facts: dict[str, Any]) -> None:
    assert facts["tiny"] == [r"caf\xe9/thumbnail.png"]
    assert facts["imbalance"] == 9
    assert facts["expected_fit"]["cores"] == len(os.sched_getaffinity(0))
    assert facts["expected_fit"]["cpu_seconds"] > 0
    assert 3e8 < facts["expected_fit"]["memory_bytes"] < 3e9


def test_check_tells_people_the_same(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(photos)]) == 0
    text = capsys.readouterr().out
    for part in (
        f"{photos}: 38 images of 5 classes, ",
        "among them 2 in folders below that of their class, 2 by way of links, 1 HEIC, 1 so large",
        "1 file is left out, without a label (not in a class folder): in no class.png",
        "🔵 discs/cut.jpg: the image is damaged",
        "of these groups, in several classes: 1\n  squares/2.png, 🔵 discs/square.png\n",
        "tiny images, under 64 pixels a side: 1\n",
        "classes differ in size: 🔵 discs has 9 images, lonely 1",
        "(an estimate)",
    ):
        assert part in text, part
    assert text.encode("utf-8")  # raises where a name is not UTF-8


def test_check_with_a_file_of_labels_looks_at_what_it_names(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = photos.parent / "labels.csv"
    assert main(["check", str(photos), "--labels", str(labels)]) == 0
    text = capsys.readouterr().out
    assert "12 images of 2 classes, 12 can be read" in text
    assert f"27 files are left out, without a label (not named in {labels})" in text


def test_check_of_one_readable_class_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"no image")
    assert main(["check", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "files that cannot be read: 2" in captured.out
    assert "fewer than two classes with a readable image" in captured.err


def test_fit_runs_through_and_names_what_it_leaves_out(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "messy"
    assert main(["fit", str(photos), "--out", str(out), *SMALL]) == 0
    assert "1 file is left out, without a label (not in a class folder)" in caplog.text
    assert "cut.jpg: the image is damaged" in caplog.text
    engine = Engine.load(out / "1")
    assert engine.labels == (r"caf\xe9", "lonely", "squares", "кресты", "🔵 discs")
    label = engine.classify((photos / "кресты" / "2020" / "май" / "1.png").read_bytes())[0].label
    assert label == "кресты"
    page = tmp_path / "report.html"
    assert main(["report", str(out / "1"), str(photos), "--out", str(page)]) == 0
    for name in engine.labels:
        assert name in page.read_text("utf-8")


def test_fit_with_a_file_of_labels_learns_them_and_evaluate_knows_them(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = ["--labels", str(photos.parent / "labels.csv")]
    out = tmp_path / "messy"
    assert main(["fit", str(photos), "--out", str(out), *labels, *SMALL]) == 0
    assert Engine.load(out / "1").labels == ("disc", "квадрат")
    capsys.readouterr()
    assert main(["evaluate", str(out / "1"), str(photos), *labels, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trained_on"] == 12
