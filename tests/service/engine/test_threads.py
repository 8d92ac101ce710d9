"""Any number of threads gives the answer of one."""

import numpy as np
import pytest

from service.engine import DescriptorError, Engine
from service.engine.threads import Threads
from tests.support.samples import random_bundle, random_descriptors, random_png

BUNDLE = random_bundle()
ALONE = Engine(BUNDLE)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("size", [(20, 20), (21, 64), (100, 90)])
def test_scores_do_not_depend_on_the_threads(threads: int, size: tuple[int, int]) -> None:
    data = random_png(3, *size)
    found = Engine(BUNDLE, threads).scores(data)
    np.testing.assert_array_equal(found, ALONE.scores(data))


@pytest.mark.parametrize("count", [0, 1, 7, 5000])
def test_codes_do_not_depend_on_the_threads(count: int) -> None:
    descriptors = random_descriptors(np.random.default_rng(1), count)
    found, expected = Engine(BUNDLE, 2).encode(descriptors), ALONE.encode(descriptors)
    np.testing.assert_array_equal(found.leaf_ids, expected.leaf_ids)
    np.testing.assert_array_equal(found.values, expected.values)


def test_what_goes_wrong_in_a_thread_is_raised() -> None:
    descriptors = np.ones((5000, 128), np.float32)
    descriptors[4321, 3] = np.nan
    with pytest.raises(DescriptorError, match="descriptor 4321 has no finite norm"):
        Engine(BUNDLE, 2).encode(descriptors)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("size", [0, 1, 3, 100])
def test_pieces_cover_everything_once(count: int, size: int) -> None:
    seen: list[int] = []
    Threads(count).split(lambda begin, end: seen.extend(range(begin, end)), size)
    assert sorted(seen) == list(range(size))


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_thread_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="expected at least one thread"):
        Engine(BUNDLE, count)
