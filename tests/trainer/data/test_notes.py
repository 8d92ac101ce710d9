"""Sentences on files that are left out."""

import sys
from pathlib import Path

import pytest

from service.engine.image_formats import readable_formats
from trainer.data.dataset import scan
from trainer.data.notes import notes


def _folder(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    return root


def test_a_tidy_folder_has_no_notes(tmp_path: Path) -> None:
    assert list(notes(scan(_folder(tmp_path, "a/1.png", "b/2.png")))) == []


def test_skipped_files_and_images_without_a_class_are_named(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "a/1.png", "a/b.txt", "котик.png", "labels.csv", "x.jpg")
    assert list(notes(scan(folder))) == [
        f"1 file is skipped, not named like images; the first is {folder}/a/b.txt",
        "2 files are left out, without a label (not in a class folder): x.jpg, котик.png",
    ]


def test_files_that_need_the_extra_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    readable_formats.cache_clear()
    folder = _folder(tmp_path, "a/1.HEIC", "a/2.heif", "b/3.png")
    (note,) = notes(scan(folder))
    readable_formats.cache_clear()
    assert note.startswith("2 files are left out, HEIC images by their names: ")
    assert "pip install 'leafcode[heif]'" in note
