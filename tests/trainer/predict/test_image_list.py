"""Which images a folder or a list stands for."""

import io
import os
from pathlib import Path

import pytest

from tests.support import pictures
from trainer.errors import DataError
from trainer.predict.image_list import STDIN, ImageList, list_images

ODD = os.fsdecode(b"caf\xe9.png")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for name in ("b.png", "a/deep/c.jpg", ODD):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(pictures.png())
    (folder / "notes.txt").write_text("no image")
    return folder


def test_a_folder_stands_for_all_images_below_it(photos: Path) -> None:
    assert list_images(photos) == ImageList(photos, ("a/deep/c.jpg", "b.png", ODD))


@pytest.mark.parametrize("folder", [".", "../photos", "a/.."])
def test_names_are_relative_to_the_folder_however_it_is_written(
    photos: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos)
    assert list_images(Path(folder)).names == ("a/deep/c.jpg", "b.png", ODD)


@pytest.mark.parametrize(
    "text",
    [
        b"b.png\na/deep/c.jpg\n",
        b"\xef\xbb\xbfb.png\r\n\r\na/deep/c.jpg",
        b"path\nb.png\na/deep/c.jpg\n",
        b"label;Path\nx;b.png\ny;a/deep/c.jpg\n",
        b'{"path": "b.png"}\n{"path": "a/deep/c.jpg", "label": "x"}\n',
    ],
)
def test_a_list_names_a_path_a_line_however_it_is_written(photos: Path, text: bytes) -> None:
    (photos / "list").write_bytes(text)
    assert list_images(photos / "list") == ImageList(photos, ("b.png", "a/deep/c.jpg"))


def test_names_with_commas_and_names_that_are_not_utf_8_are_taken_as_they_are(photos: Path) -> None:
    (photos / "list").write_bytes(b"caf\xe9.png\n a, b.png\n")
    assert list_images(photos / "list").names == (ODD, " a, b.png")


def test_a_list_elsewhere_is_relative_to_where_the_command_runs(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "list").write_text("gone.png\nb.png\n")
    monkeypatch.chdir(photos)
    assert list_images(tmp_path / "list") == ImageList(Path(), ("gone.png", "b.png"))


def test_a_list_may_come_from_standard_input(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"b.png\n")))
    assert list_images(STDIN) == ImageList(Path(), ("b.png",))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("list", b"", "names no image, expected a path a line"),
        ("list", b"gone.png\n", r"there is no gone\.png in .* nor in .*, and none of the next"),
        ("list", b'{"path": 7.5}\n', "line 1 has no path"),
        ("list", b'{"path": \n', "line 1 is no JSON"),
        ("list", b"b.png\na\0b\n", r"line 2: no file can be named a\\x00b"),
        ("one.png", b"", "is one image, expected a folder of images or a list"),
    ],
)
def test_a_list_that_names_nothing_is_rejected(
    photos: Path, name: str, content: bytes, sentence: str
) -> None:
    (photos / name).write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        list_images(photos / name)


def test_what_is_not_there_and_what_is_empty_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone cannot be read: No such file"):
        list_images(tmp_path / "gone")
    with pytest.raises(DataError, match="there are no images below"):
        list_images(tmp_path)
