"""Kernels that look at bytes and pixels say what plain NumPy says."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import frozen
from service.engine.kernels.copies import has_contrast
from service.engine.kernels.scans import count_pairs


@given(st.binary(max_size=300), st.integers(0, 255), st.integers(0, 255))
def test_pairs_of_bytes_are_counted(data: bytes, first: int, second: int) -> None:
    expected = sum(pair == (first, second) for pair in pairwise(data))
    assert count_pairs(frozen(np.frombuffer(data, np.uint8)), first, second) == expected


def test_pairs_that_overlap_all_count() -> None:
    assert count_pairs(frozen(np.full(5, 255, np.uint8)), 255, 255) == 4


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32), st.floats(0, 1.1))
def test_contrast_is_the_largest_difference(
    height: int, width: int, seed: int, least: float
) -> None:
    gray = np.random.default_rng(seed).random((height, width), np.float32)
    expected = float(gray.max() - gray.min()) >= least
    assert has_contrast(frozen(gray), least) is expected


@pytest.mark.parametrize("place", [(0, 0), (4, 16), (8, 3)])
def test_one_other_pixel_is_contrast_wherever_it_is(place: tuple[int, int]) -> None:
    gray = np.full((9, 17), 0.5, np.float32)
    assert not has_contrast(frozen(gray), 0.1)
    gray[place] = 0.7
    assert has_contrast(frozen(gray), 0.1)
