"""Labels from CSV and JSON lines: what is read, and which line is wrong."""

import json
from pathlib import Path

import pytest

from trainer.data.dataset import Dataset
from trainer.data.labels_file import read_labels
from trainer.errors import DataError

NAMES = ("1.png", "sub/2.png", "3.png", "кот.png")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in NAMES:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "photos"


def _read(photos: Path, text: str, name: str = "labels.csv") -> Dataset:
    file = photos / name
    file.write_bytes(text.encode())
    return read_labels(file, photos)


def _labelled(dataset: Dataset) -> list[tuple[str, str]]:
    return [
        (image.path.relative_to(dataset.root).as_posix(), dataset.labels[image.label])
        for image in dataset.images
    ]


EXPECTED = [("3.png", "cat"), ("кот.png", "cat"), ("1.png", "a dog"), ("sub/2.png", "a dog")]
EXPECTED.sort(key=lambda pair: pair[1])


@pytest.mark.parametrize(
    "text",
    [
        "path,label\n1.png,a dog\nsub/2.png,a dog\n3.png,cat\nкот.png,cat\n",
        '\ufeffLabel;Path\r\n"a dog";1.png\r\na dog;sub/2.png\r\n\r\ncat;3.png\r\ncat;кот.png\r\n',
        "path\tid\tlabel\nsub/2.png\t7\ta dog\n1.png\t8\ta dog\n3.png\t\tcat\nкот.png\t9\tcat",
    ],
    ids=["plain", "from a spreadsheet", "tabs and another column"],
)
def test_csv_gives_labels_to_paths(photos: Path, text: str) -> None:
    dataset = _read(photos, text)
    assert dataset.labels == ("a dog", "cat")
    assert _labelled(dataset) == EXPECTED


def test_json_lines_give_the_same(photos: Path) -> None:
    lines = [json.dumps({"path": path, "label": label}) for path, label in reversed(EXPECTED)]
    assert _labelled(_read(photos, "\n".join(lines), "labels.jsonl")) == EXPECTED


def test_paths_are_relative_to_the_file_or_to_the_folder_of_images(photos: Path) -> None:
    file = photos.parent / "labels.csv"
    file.write_text("path,label\nphotos/1.png,dog\n3.png,cat\n", "utf-8")
    assert _labelled(read_labels(file, photos)) == [("3.png", "cat"), ("1.png", "dog")]


def test_images_without_a_line_are_named(photos: Path) -> None:
    dataset = _read(photos, "path,label\n1.png,dog\n3.png,cat\n")
    assert [path.name for path in dataset.unlabelled] == ["2.png", "кот.png"]


def test_a_missing_image_and_a_repeated_line_do_no_harm(photos: Path) -> None:
    dataset = _read(photos, "path,label\n1.png,dog\n1.png,dog\ngone.png,cat\n")
    assert _labelled(dataset) == [("gone.png", "cat"), ("1.png", "dog")]


def test_fingerprints_do_not_depend_on_the_order_of_the_lines(photos: Path) -> None:
    prints = set()
    for text in ("path,label\n1.png,dog\n3.png,cat\n", "path,label\n3.png,cat\n1.png,dog\n"):
        dataset = _read(photos, text)
        prints.add(dataset.fingerprint(dataset.images))
    assert len(prints) == 1


def test_excluded_labels_are_left_out(photos: Path) -> None:
    file = photos / "labels.csv"
    file.write_text("path,label\n1.png,dog\n3.png,cat\n", "utf-8")
    assert read_labels(file, photos, exclude=("cat",)).labels == ("dog",)
    with pytest.raises(DataError, match="has no class cow to exclude"):
        read_labels(file, photos, exclude=("cow",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 has nothing, expected the columns path and label"),
        ("path,label\n", "names no image"),
        ("file,class\n1.png,dog\n", "line 1 has the columns file, class, expected the columns"),
        ("path,label\n1.png,dog\n3.png\n", "line 3 has no label"),
        ("path,label\n1.png,dog\n\n,cat\n", "line 4 has no path"),
        ("path,label\n1.png,dog\n1.png,cat\n", "line 3: 1.png has the label cat, but line 2 gives"),
        ("path,label\nx.png,dog\ny.png,cat\n", "line 2: there is no x.png in"),
        ('{"path": "1.png", "label": "dog"}\n{"path": "3.png"}\n', "line 2 has no label"),
        ('{"path": "1.png", "label": "dog"}\n{"path" "3.png"}\n', "line 2 is no JSON"),
        ('{"path": "1.png", "label": "dog"}\n["3.png"]\n', "line 2 is list, expected an object"),
        ('{"path": "a\\u0000b", "label": "dog"}\n', r"line 1: no file can be named a\x00b"),
        ('{"path": "a\\ud800b", "label": "dog"}\n', "line 1: no file can be named a"),
    ],
)
def test_a_wrong_line_is_named(photos: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as raised:
        _read(photos, text)
    assert message in str(raised.value)


def test_a_missing_file_is_named(photos: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.csv cannot be read: No such file"):
        read_labels(photos / "nowhere.csv", photos)
