"""How images are cut into parts, and what tells one job from another."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.predict.job import Job, Model, Wanted, cut, job_of

MODEL = Model(Path("/models/tiny/1"), "tiny", 1, "abc")


def names(count: int) -> tuple[str, ...]:
    return tuple(f"{number}.png" for number in range(count))


@given(st.integers(0, 20_000), st.booleans())
def test_parts_are_all_images_in_their_order(count: int, pooled_vectors: bool) -> None:  # noqa: FBT001
    parts = list(cut(names(count), Wanted(pooled_vectors=pooled_vectors)))
    assert [name for part in parts for name in part.names] == list(names(count))
    assert [part.number for part in parts] == list(range(len(parts)))


def test_the_last_parts_are_small_so_that_nobody_waits_long_for_the_last_one() -> None:
    sizes = [len(part.names) for part in cut(names(9144), Wanted())]
    assert sizes[0] == 256
    assert max(sizes[-16:]) == 16
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 79


def test_parts_with_pooled_vectors_fit_in_memory() -> None:
    assert max(len(part.names) for part in cut(names(9144), Wanted(pooled_vectors=True))) == 64


def test_very_many_images_are_no_more_files_than_a_folder_takes() -> None:
    assert len(list(cut(["x"] * 2_000_000, Wanted()))) < 5000


def test_files_sort_by_the_number_of_their_part() -> None:
    files = [part.file_name for part in cut(names(9144), Wanted())]
    assert files == sorted(files)


def job(model: Model = MODEL, images: tuple[str, ...] = names(3), top_k: int = 1) -> Job:
    return job_of(model, Path("photos"), images, Path("out"), Wanted(top_k))


@pytest.mark.parametrize(
    "other",
    [
        job(replace(MODEL, digest="def")),
        job(images=names(4)),
        job(images=("0.png", "2.png", "1.png")),
        job(images=("0.png", "1.png2.png", "")),
        job(top_k=2),
    ],
)
def test_another_model_list_or_table_is_another_run(other: Job) -> None:
    assert other.run != job().run


def test_the_same_command_is_the_same_run() -> None:
    assert job() == job()
