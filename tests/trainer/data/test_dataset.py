"""Folders of images: what is found, what is skipped, and splits that anyone can rebuild."""

import os
from pathlib import Path

import numpy as np
import pytest

from trainer.data.dataset import Dataset, scan
from trainer.errors import DataError


def _folder(root: Path, names: dict[str, list[str]]) -> Path:
    for label, files in names.items():
        (root / label).mkdir(parents=True)
        for file in files:
            (root / label / file).touch()
    return root


def _numbered(root: Path) -> Dataset:
    files = [f"image_{i:04}.jpg" for i in range(10)]
    return scan(_folder(root, {"Beta": files, "alpha": files[:7], "gamma": files[:3]}))


def test_classes_and_files_are_sorted_by_name(tmp_path: Path) -> None:
    dataset = scan(_folder(tmp_path, {"b": ["2.png", "10.png"], "a": ["x.JPG"], "C": ["1.webp"]}))
    assert dataset.labels == ("C", "a", "b")
    assert [image.path.name for image in dataset.images] == ["1.webp", "x.JPG", "10.png", "2.png"]


def test_hidden_files_are_ignored_and_others_are_listed_as_skipped(tmp_path: Path) -> None:
    dataset = scan(_folder(tmp_path, {"a": [".DS_Store", "notes.txt", "1.png"], ".git": ["x.png"]}))
    assert dataset.labels == ("a",)
    assert [path.name for path in dataset.skipped] == ["notes.txt"]


def test_split_follows_the_published_rule(tmp_path: Path) -> None:
    """Classes in order, one generator for all, the first of a permutation train."""
    dataset = _numbered(tmp_path)
    split = dataset.split(4, seed=7)
    rng = np.random.default_rng(7)
    for label, size in enumerate((10, 7, 3)):
        expected = {f"image_{i:04}.jpg" for i in rng.permutation(size)[:4]}
        assert {image.path.name for image in split.train if image.label == label} == expected


def test_split_parts_are_disjoint_and_complete(tmp_path: Path) -> None:
    dataset = _numbered(tmp_path)
    split = dataset.split(4, seed=0)
    assert not set(split.train) & set(split.test)
    assert set(split.train) | set(split.test) == set(dataset.images)


def test_restriction_renumbers_labels_and_gives_the_same_split(tmp_path: Path) -> None:
    whole = _numbered(tmp_path)
    excluded = scan(tmp_path, exclude=("Beta",))
    restricted = whole.restricted_to(("alpha", "gamma"))
    assert restricted.images == excluded.images
    assert restricted.split(2, 0) == excluded.split(2, 0)


def test_fingerprint_tells_splits_apart(tmp_path: Path) -> None:
    dataset = _numbered(tmp_path)
    prints = {dataset.fingerprint(dataset.split(4, seed).train) for seed in (0, 0, 1)}
    assert len(prints) == 2


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        scan(tmp_path / "nowhere")


def test_folder_without_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no sub-folders"):
        scan(tmp_path)


def test_unknown_class_to_exclude_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sub-folder delta"):
        scan(_folder(tmp_path, {"a": ["1.png"]}), exclude=("delta",))


def test_every_image_below_a_class_folder_is_of_the_class(tmp_path: Path) -> None:
    dataset = scan(_folder(tmp_path, {"a": ["0.png"], "a/2020/05": ["1.png"], "b": ["3.png"]}))
    assert dataset.labels == ("a", "b")
    found = [(image.path.name, image.label) for image in dataset.images]
    assert found == [("0.png", 0), ("1.png", 0), ("3.png", 1)]


def test_images_in_the_root_are_unlabelled(tmp_path: Path) -> None:
    folder = _folder(tmp_path, {"a": ["1.png"], "b": ["2.png"]})
    for name in ("lost.jpg", "labels.csv"):
        (folder / name).touch()
    assert [path.name for path in scan(folder).unlabelled] == ["lost.jpg"]


def test_a_class_whose_name_is_not_utf8_has_a_label_that_can_be_written(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    (folder / "1.png").touch()
    dataset = scan(_folder(tmp_path, {"тест": ["2.png"]}))
    assert dataset.labels == (r"caf\xe9", "тест")
    assert len(dataset.fingerprint(dataset.images)) == 64
