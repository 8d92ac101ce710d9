"""Folders as people have them: nested, linked in circles, named in any script."""

import itertools
import os
from pathlib import Path

from trainer.data.image_files import find_images, printable


def _touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def _names(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in find_images(root).images]


def test_images_of_nested_folders_are_found_in_the_order_of_their_paths(tmp_path: Path) -> None:
    _touch(tmp_path, "b.png", "2020/05/x.JPG", "2020/a.jfif", "кошки/🐈.webp", "notes.txt")
    assert _names(tmp_path) == ["2020/05/x.JPG", "2020/a.jfif", "b.png", "кошки/🐈.webp"]
    assert [path.name for path in find_images(tmp_path).skipped] == ["notes.txt"]


def test_hidden_and_system_folders_are_passed_over(tmp_path: Path) -> None:
    _touch(tmp_path, "a.png", ".git/b.png", "__MACOSX/._a.png", "@eaDir/a.png/THUMB.jpg")
    assert _names(tmp_path) == ["a.png"]
    assert not find_images(tmp_path).skipped


def test_links_are_followed_and_circles_end(tmp_path: Path) -> None:
    elsewhere = _touch(tmp_path / "elsewhere", "one.png", "deep/two.png")
    folder = _touch(tmp_path / "photos", "own.png")
    (folder / "linked.png").symlink_to(elsewhere / "one.png")
    (folder / "more").symlink_to(elsewhere)
    (elsewhere / "deep" / "up").symlink_to(folder)
    (folder / "itself").symlink_to(folder / "itself")
    assert _names(folder) == ["linked.png", "more/deep/two.png", "more/one.png", "own.png"]


def test_folders_that_link_to_each_other_are_entered_once_each(tmp_path: Path) -> None:
    # Every way through 30 folders that are all linked to the next by two names: 2 ** 30.
    folders = [_touch(tmp_path / str(number), "x.png") for number in range(30)]
    for here, there in itertools.pairwise(folders):
        (here / "left").symlink_to(there)
        (here / "right").symlink_to(there)
    assert len(_names(folders[0])) == 30


def test_a_link_that_leads_nowhere_stays_so_that_reading_tells(tmp_path: Path) -> None:
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert _names(tmp_path) == ["gone.png"]


def test_a_name_that_is_not_utf8_is_found_and_can_be_printed(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")).touch()
    (found,) = find_images(tmp_path).images
    assert printable(found.name) == r"caf\xe9.png"


def test_printable_keeps_every_script_and_shows_control_characters() -> None:
    assert printable("кошка 🐈‍⬛ ねこ") == "кошка 🐈‍⬛ ねこ"
    assert printable("a\nb\x1b[0m") == r"a\x0ab\x1b[0m"
