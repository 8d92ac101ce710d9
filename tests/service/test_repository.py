"""Model repositories: what is found, and what is refused with a sentence."""

from dataclasses import replace
from pathlib import Path

import pytest

from service.engine import BundleError
from service.errors import SettingsError, UnknownModelError
from service.repository import ModelKey, Repository
from tests.support import bundles

TENSORS, MANIFEST = "tensors.safetensors", "manifest.json"


@pytest.fixture(scope="module")
def repository(models: Path) -> Repository:
    return Repository.load(models)


def test_versions_are_loaded_and_staging_is_not(repository: Repository) -> None:
    assert repository.keys == [ModelKey("apples", 1), ModelKey("apples", 2), ModelKey("tiny", 1)]


@pytest.mark.parametrize(
    ("name", "version", "found"),
    [
        (None, None, ModelKey("apples", 2)),
        ("apples", None, ModelKey("apples", 2)),
        ("apples", 1, ModelKey("apples", 1)),
        (None, 1, ModelKey("apples", 1)),
        ("tiny", None, ModelKey("tiny", 1)),
    ],
)
def test_the_first_name_and_the_highest_version_are_the_default(
    repository: Repository, name: str | None, version: int | None, found: ModelKey
) -> None:
    assert ModelKey.of(repository.find(name, version).manifest) == found


def test_version_ten_is_higher_than_version_nine(tmp_path: Path) -> None:
    for version in (9, 10):
        bundles.write_model(tmp_path, version=version)
    assert Repository.load(tmp_path).find().manifest.version == 10


@pytest.mark.parametrize("name", ["", "..", "../apples", "apples/2", "APPLES", "x" * 5000])
def test_an_unknown_name_says_which_are_known(repository: Repository, name: str) -> None:
    with pytest.raises(UnknownModelError, match=r"expected one of: apples, tiny$") as caught:
        repository.find(name)
    assert len(str(caught.value)) < 300


def test_an_unknown_version_says_which_are_known(repository: Repository) -> None:
    with pytest.raises(UnknownModelError, match=r"version 3 .* expected one of: 1, 2$"):
        repository.find("apples", 3)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="nowhere: cannot be read"):
        Repository.load(tmp_path / "nowhere")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no bundle found"):
        Repository.load(tmp_path)


@pytest.mark.parametrize("inner", ["tiny", "tiny/1"])
def test_a_folder_too_deep_is_refused_with_the_right_one(models: Path, inner: str) -> None:
    with pytest.raises(BundleError, match=f"did you mean {models}\\?"):
        Repository.load(models / inner)


def test_foreign_files_and_folders_are_named_and_passed_over(
    models: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundles.copy_model(models / "tiny" / "1", tmp_path / "tiny" / "1")
    for folder in ("tiny/latest", "tiny/2", "my photos/1", "lost+found", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("README.md", "tiny/notes.txt", ".hidden"):
        (tmp_path / file).write_text("not a model")
    assert Repository.load(tmp_path).keys == [ModelKey("tiny", 1)]
    passed = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    version = "not a version, expected a folder whose name is a whole number"
    name = "not a model name, expected letters, digits, '.', '_' and '-'"
    assert passed == [
        f"{tmp_path / path} is passed over: {reason}"
        for path, reason in {
            "README.md": "not a folder",
            "empty": "no version in it",
            "lost+found": name,
            "my photos": name,
            "tiny/2": "no manifest.json in it",
            "tiny/latest": version,
            "tiny/notes.txt": version,
        }.items()
    ]


@pytest.mark.parametrize("foreign", ["tiny/latest", "tiny model/1", "tiny", "tiny/1"])
def test_a_folder_with_foreign_things_alone_is_refused(tmp_path: Path, foreign: str) -> None:
    (tmp_path / foreign).mkdir(parents=True)
    with pytest.raises(BundleError, match="no bundle found, expected <name>/<version>/manifest"):
        Repository.load(tmp_path)


def test_the_default_model_can_be_chosen(models: Path) -> None:
    repository = Repository.load(models, "tiny")
    assert ModelKey.of(repository.find().manifest) == ModelKey("tiny", 1)
    assert repository.default_key == ModelKey("tiny", 1)


def test_a_default_model_that_does_not_exist_is_refused(models: Path) -> None:
    with pytest.raises(SettingsError, match=r"is 'pears', expected one of .*: apples, tiny$"):
        Repository.load(models, "pears")


def test_a_default_model_that_is_lost_is_unknown_and_not_replaced_by_another_one(
    repository: Repository,
) -> None:
    tiny = ModelKey("tiny", 1)
    left = replace(repository, models={tiny: repository.models[tiny]})
    assert left.default_key is None
    with pytest.raises(UnknownModelError, match=r"'apples' is not loaded, expected one of: tiny"):
        left.find()


@pytest.mark.parametrize("place", ["other/1", "tiny/2"])
def test_a_bundle_in_the_folder_of_another_is_refused(
    models: Path, tmp_path: Path, place: str
) -> None:
    bundles.copy_model(models / "tiny" / "1", tmp_path / place)
    with pytest.raises(BundleError, match="says it is tiny version 1, its folder says"):
        Repository.load(tmp_path)


@pytest.mark.parametrize("position", [0, 9, 1000, -1])
def test_a_flipped_byte_of_the_tensors_is_refused(
    models: Path, tmp_path: Path, position: int
) -> None:
    folder = bundles.copy_model(models / "tiny" / "1", tmp_path / "tiny" / "1")
    bundles.flip_byte(folder / TENSORS, position)
    with pytest.raises(BundleError, match=r"tensors\.safetensors: SHA-256 is .* damaged"):
        Repository.load(tmp_path)


@pytest.mark.parametrize("position", [0, 5, 40, 300, 2000, -30, -1])
def test_a_flipped_byte_of_the_manifest_is_refused(
    models: Path, tmp_path: Path, position: int
) -> None:
    folder = bundles.copy_model(models / "tiny" / "1", tmp_path / "tiny" / "1")
    bundles.flip_byte(folder / MANIFEST, position)
    with pytest.raises(BundleError, match=r"manifest\.json"):
        Repository.load(tmp_path)


@pytest.mark.parametrize("missing", [TENSORS, MANIFEST])
def test_a_missing_file_is_refused(models: Path, tmp_path: Path, missing: str) -> None:
    folder = bundles.copy_model(models / "tiny" / "1", tmp_path / "tiny" / "1")
    (folder / missing).unlink()
    with pytest.raises(BundleError, match=missing):
        Repository.load(tmp_path)
