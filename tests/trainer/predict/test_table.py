"""The table on disk: what may be gone on with, and what happens where it cannot be written."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from service.engine import BundleError
from service.engine.bundle import read_manifest
from tests.support import pictures
from trainer.errors import ConfigError, DataError, TrainingError
from trainer.predict.job import Job, Model, Part, Wanted, cut, job_of
from trainer.predict.table import check_target, count, is_written, open_table
from trainer.predict.worker import Attempt, classify_part

NAMES = ("a.png", "b.png", "gone.png")


@pytest.fixture
def job(models: Path, tmp_path: Path) -> Job:
    bundle = models / "apples" / "2"
    for name in NAMES[:2]:
        (tmp_path / name).write_bytes(pictures.png())
    model = Model.of(bundle, read_manifest(bundle))
    return job_of(model, tmp_path, NAMES, tmp_path / "out", Wanted())


@pytest.fixture
def part(job: Job) -> Part:
    (only,) = cut(NAMES, job.wanted)
    return only


def test_a_part_is_written_whole_and_known_again(job: Job, part: Part) -> None:
    open_table(job)
    assert not is_written(job, part)
    classify_part(job, part, Attempt()).finish()
    assert is_written(job, part)
    assert sorted(path.name for path in job.out.iterdir()) == ["_leafcode.json", part.file_name]
    facts = json.loads(pq.read_schema(job.out / part.file_name).metadata[b"leafcode"])
    assert facts["digest"] == job.model.digest
    assert facts["model"] == "apples"


def test_a_part_of_another_run_or_a_damaged_one_is_made_again(job: Job, part: Part) -> None:
    open_table(job)
    classify_part(job, part, Attempt()).finish()
    assert not is_written(replace(job, run="another"), part)
    path = job.out / part.file_name
    path.write_bytes(path.read_bytes()[:-20])
    assert not is_written(job, part)


def test_counts_are_of_all_rows_and_numbers_do_not_part_reasons(job: Job, part: Part) -> None:
    for name, size in (("gone.png", 5), ("b.png", 7)):
        (job.images / name).write_bytes(bytes(size))
    (job.images / "a.png").write_bytes(pictures.png(pictures.blank()))
    open_table(job)
    counts = classify_part(job, part, Attempt()).finish()
    assert counts == count(job, [part])
    assert (counts.images, counts.unreadable, counts.unknown) == (3, 2, 1)
    (reason,) = counts.problems
    assert reason.startswith("the … bytes are not an image")


def test_a_new_name_or_an_empty_folder_is_fine(tmp_path: Path) -> None:
    check_target(tmp_path, resume=False)
    check_target(tmp_path / "models" / "new", resume=False)
    check_target(tmp_path / "new", resume=True)


def test_a_table_that_is_there_needs_resume(job: Job) -> None:
    open_table(job)
    check_target(job.out, resume=True)
    with pytest.raises(ConfigError, match="has a table in it; with --resume the same command"):
        check_target(job.out, resume=False)


def test_other_files_are_no_table(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    for resume in (False, True):
        with pytest.raises(ConfigError, match="has other files in it, expected a new name"):
            check_target(tmp_path, resume=resume)
    with pytest.raises(ConfigError, match=r"letter\.txt is not a writable folder"):
        check_target(tmp_path / "letter.txt", resume=False)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"digest": "e" * 64}, "the digest of the model was .*, now it is eeee"),
        ({"images": 4}, "the number of images was 3, now it is 4"),
        ({"images_sha256": "0"}, "the digest of their names was"),
        ({"top_k": 5}, "--top-k was 1, now it is 5"),
        ({"codes": True}, "--codes was False, now it is True"),
        ({"leafcode": "9.9"}, r"the version of leafcode was .*, now it is 9\.9"),
    ],
)
def test_another_run_does_not_go_on_with_a_table(
    job: Job, change: dict[str, object], sentence: str
) -> None:
    open_table(job)
    with pytest.raises(ConfigError, match=f"was begun otherwise: {sentence}"):
        open_table(replace(job, facts={**job.facts, **change}))


def test_what_killed_processes_left_is_removed(job: Job) -> None:
    open_table(job)
    (job.out / ".unfinished-1").write_bytes(b"half")
    open_table(job)
    assert [path.name for path in job.out.iterdir()] == ["_leafcode.json"]


def test_a_file_of_facts_that_is_damaged_is_named(job: Job) -> None:
    open_table(job)
    (job.out / "_leafcode.json").write_bytes(b"{")
    with pytest.raises(DataError, match=r"_leafcode\.json cannot be read, expected what predict"):
        open_table(job)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that is full: writing more is an error."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_told_in_a_sentence_and_leaves_nothing(job: Job, part: Part) -> None:
    open_table(job)
    with (
        files_of_at_most(100),
        pytest.raises(TrainingError, match=r"part-000000\.parquet cannot be written: File too"),
    ):
        classify_part(job, part, Attempt()).finish()
    assert [path.name for path in job.out.iterdir()] == ["_leafcode.json"]
    with files_of_at_most(10), pytest.raises(ConfigError, match="cannot be written: File too"):
        open_table(replace(job, out=job.out.parent / "other"))


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(job: Job) -> None:
    out = Path("/proc/table")  # nobody makes folders there, root neither
    with pytest.raises(ConfigError, match="--out /proc/table cannot be written"):
        open_table(replace(job, out=out))


def test_a_bundle_that_changed_is_rejected(job: Job, part: Part) -> None:
    open_table(job)
    model = replace(job.model, digest="0" * 64)
    with pytest.raises(BundleError, match=r"has the digest .*, expected 0000"):
        classify_part(replace(job, model=model), part, Attempt())
