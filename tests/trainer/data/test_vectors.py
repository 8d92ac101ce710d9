"""Pooled vectors in a file, in 8-bit integers."""

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import Float32Array
from trainer.data.vectors import VectorFile
from trainer.errors import DataError

SLICES = (slice(0, 30), slice(30, 37))


@pytest.fixture
def file(tmp_path: Path) -> Iterator[VectorFile]:
    with VectorFile.opened(tmp_path, SLICES) as opened:
        yield opened


def _vectors(count: int, scale: float = 1.0) -> Float32Array:
    return (scale * np.random.default_rng(0).normal(size=(count, 37))).astype(np.float32)


def _floats(file: VectorFile, rows: slice) -> Float32Array:
    floats = file.read(rows).astype(np.float32)
    for number, place in enumerate(SLICES):
        floats[:, place] *= file.scales[rows, number, np.newaxis]
    return floats


@given(st.integers(0, 10), st.integers(0, 10), st.floats(1e-30, 1e30))
def test_numbers_are_rounded_by_half_a_scale_at_most(
    tmp_path_factory: pytest.TempPathFactory, start: int, count: int, scale: float
) -> None:
    vectors = _vectors(20, scale)
    rows = slice(start, start + count)
    with VectorFile.opened(tmp_path_factory.getbasetemp(), SLICES) as file:
        for vector in vectors:
            file.append(vector)
        errors = np.abs(_floats(file, rows) - vectors[rows])
        for number, place in enumerate(SLICES):
            limits = 0.5001 * file.scales[rows, number, np.newaxis]
            assert (errors[:, place] <= limits).all()


def test_a_block_of_zeros_stays_zero(file: VectorFile) -> None:
    vector = _vectors(1)[0]
    vector[SLICES[1]] = 0
    file.append(vector)
    assert not file.read(slice(0, 1))[:, SLICES[1]].any()
    assert file.scales[0, 1] == 0


def test_the_file_has_no_name_and_vectors_can_be_added_after_reading(
    file: VectorFile, tmp_path: Path
) -> None:
    for vector in _vectors(3):
        file.append(vector)
        file.read(slice(0, len(file)))
    assert len(file) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_is_told_in_a_sentence(file: VectorFile) -> None:
    def fill() -> None:
        for vector in _vectors(1000):
            file.append(vector)

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(DataError, match=r"cannot be written to .*--scratch"):
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_more_than_was_written_cannot_be_read(file: VectorFile) -> None:
    file.append(_vectors(1)[0])
    with pytest.raises(DataError, match="cut short"):
        file.read(slice(0, 2))
