"""Publishing a bundle as the next version of a model, also side by side with others."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

from service.engine import read_bundle
from tests.support.samples import random_bundle
from trainer.publish import UNPUBLISHED, publish

BUNDLE = random_bundle()
NEW = replace(BUNDLE, manifest=replace(BUNDLE.manifest, version=UNPUBLISHED))


def test_the_next_version_is_one_more_than_the_highest(tmp_path: Path) -> None:
    for name in ("2", "9", "notes"):
        (tmp_path / name).mkdir()
    folder, manifest = publish(NEW, tmp_path)
    assert folder == tmp_path / "10"
    assert manifest == read_bundle(folder).manifest
    assert manifest.version == 10


def test_bundles_published_at_once_all_get_a_version_of_their_own(tmp_path: Path) -> None:
    count = 6
    ready = Barrier(count)

    def publish_when_all_are_ready(_: int) -> Path:
        ready.wait()
        return publish(NEW, tmp_path / "sample")[0]

    with ThreadPoolExecutor(count) as threads:
        folders = list(threads.map(publish_when_all_are_ready, range(count)))
    expected = [tmp_path / "sample" / str(version) for version in range(1, count + 1)]
    assert sorted(folders) == expected
    assert sorted((tmp_path / "sample").iterdir()) == expected
    assert [read_bundle(folder).manifest.version for folder in expected] == [1, 2, 3, 4, 5, 6]
