"""Groups of equal and of similar rows, against a slow and obvious way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.arrays import Float32Array
from trainer.data import duplicates
from trainer.data.duplicates import Sketcher, identical_groups, similar_groups


def _unit_rows(count: int, seed: int, width: int = 4) -> Float32Array:
    rows = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def _by_flooding(rows: Float32Array, threshold: float) -> list[tuple[int, ...]]:
    near = rows @ rows.T >= threshold
    groups, seen = [], set[int]()
    for start in range(len(rows)):
        if start in seen:
            continue
        reached = {start}
        while True:
            wider = reached | {int(i) for place in reached for i in np.flatnonzero(near[place])}
            if wider == reached:
                break
            reached = wider
        seen |= reached
        if len(reached) > 1:
            groups.append(tuple(sorted(reached)))
    return groups


@given(st.integers(0, 40), st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.8, 0.95]))
def test_similar_groups_are_those_that_flooding_finds(
    count: int, seed: int, threshold: float
) -> None:
    rows = _unit_rows(count, seed)
    assert similar_groups(rows, threshold) == _by_flooding(rows, threshold)


@pytest.mark.parametrize("block", [1, 7, 30, 31])
def test_similar_groups_do_not_depend_on_the_blocks(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _unit_rows(30, 1)
    whole = similar_groups(rows, 0.9)
    assert whole
    monkeypatch.setattr(duplicates, "_BLOCK_ROWS", block)
    assert similar_groups(rows, 0.9) == whole


def test_identical_groups_are_in_the_order_of_their_first_members() -> None:
    assert identical_groups([b"b", b"a", b"c", b"a", b"b", b"a"]) == [(0, 4), (1, 3, 5)]


def test_sketches_keep_the_cosines_of_long_vectors() -> None:
    rng = np.random.default_rng(0)
    first = rng.gamma(0.1, size=100_000).astype(np.float32)
    second = rng.gamma(0.1, size=100_000).astype(np.float32)
    sketch = Sketcher(100_000)
    for share in (0.0, 0.3, 0.7, 1.0):
        mixed = (share * first + (1 - share) * second).astype(np.float32)
        cosine = first @ mixed / np.linalg.norm(first) / np.linalg.norm(mixed)
        assert abs(sketch(first) @ sketch(mixed) - cosine) < 0.1


def test_the_sketch_of_an_image_that_shows_nothing_is_similar_to_none() -> None:
    nothing = Sketcher(1000)(np.zeros(1000, np.float32))
    assert similar_groups(np.stack([nothing, nothing])) == []
