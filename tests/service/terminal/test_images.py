"""Files and folders as arguments."""

from pathlib import Path

import pytest

from service.terminal.images import list_images


def test_a_folder_stands_for_all_images_below_it_sorted(tmp_path: Path) -> None:
    for name in ("b/2.PNG", "b/10.jpg", "a.webp", "b/notes.txt", ".hidden.png", ".git/x.png"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    images = [str(tmp_path / name) for name in ("a.webp", "b/10.jpg", "b/2.PNG")]
    assert list_images(["z", str(tmp_path), "-"]) == ["z", *images, "-"]


def test_a_folder_without_images_stays_so_that_it_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert list_images([str(tmp_path)]) == [str(tmp_path)]


@pytest.mark.parametrize("name", ["photo.jpg", "notes.txt", "/nowhere"])
def test_a_file_is_taken_by_any_name(name: str) -> None:
    assert list_images([name, name]) == [name, name]
