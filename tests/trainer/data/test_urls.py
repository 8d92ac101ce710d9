"""Folders of images that URLs name."""

import argparse
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from upath import UPath

from trainer.data.dataset import scan
from trainer.data.labels_file import read_labels
from trainer.data.urls import folder_of, is_url
from trainer.errors import DataError


@pytest.fixture
def bucket() -> Iterator[Path]:
    folder = UPath("memory://leafcode-tests/photos")
    for name in ("b/2.png", "b/1.JPG", "a/deep/3.png", "a/.hidden/4.png", "a/notes.txt", "5.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    yield folder_of("memory://leafcode-tests/photos")
    folder.fs.rm("/leafcode-tests", recursive=True)


def test_images_below_a_url_are_those_that_a_folder_would_have(bucket: Path) -> None:
    found = scan(bucket)
    assert found.labels == ("a", "b")
    names = [found.name_of(image.path) for image in found.images]
    assert names == ["a/deep/3.png", "b/1.JPG", "b/2.png"]
    assert [path.name for path in found.skipped] == ["notes.txt"]
    assert [path.name for path in found.unlabelled] == ["5.png"]
    assert found.images[0].path.absolute().read_bytes() == b"a/deep/3.png"
    assert pickle.loads(pickle.dumps(found.images)) == found.images


def test_a_url_without_a_folder_is_named() -> None:
    with pytest.raises(DataError, match="memory://nothing-here is not a folder"):
        scan(folder_of("memory://nothing-here"))


def test_labels_are_for_folders_of_this_machine(bucket: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--labels beside the URL memory://"):
        read_labels(tmp_path / "labels.csv", bucket)


def test_paths_of_this_machine_stay_plain_paths() -> None:
    assert folder_of("photos") == Path("photos")
    assert not is_url(folder_of("photos"))


def test_a_kind_of_url_that_nothing_opens_is_named() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="nosuch://x cannot be opened"):
        folder_of("nosuch://x")


def test_without_the_extra_a_url_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(argparse.ArgumentTypeError, match=r"leafcode\[cluster\]"):
        folder_of("memory://photos")
