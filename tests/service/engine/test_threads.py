"""Any number of threads gives the answer of one."""

import threading
from concurrent.futures import ThreadPoolExecutor

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


def test_an_error_is_raised_when_all_pieces_have_ended() -> None:
    begun, ended = threading.Barrier(2), list[int]()

    def work(begin: int, _: int) -> None:
        begun.wait()
        if begin:
            raise ValueError("the second one")
        ended.append(begin)

    threads = Threads(2)
    with pytest.raises(ValueError, match="the second one"):
        threads.split(work, 2)
    assert ended == [0]
    threads.split(lambda begin, _: ended.append(begin), 2)
    assert sorted(ended) == [0, 0, 1]


def test_an_error_of_the_caller_waits_for_the_other_pieces() -> None:
    go_on, ended = threading.Event(), list[int]()

    def work(begin: int, _: int) -> None:
        if begin == 0:
            go_on.set()
            raise ValueError("the first one")
        go_on.wait()
        ended.append(begin)

    with pytest.raises(ValueError, match="the first one"):
        Threads(3).split(work, 3)
    assert sorted(ended) == [1, 2]


def test_callers_at_once_all_get_their_pieces() -> None:
    threads, both = Threads(2), threading.Barrier(2)

    def count(_: int) -> list[int]:
        seen: list[int] = []
        both.wait()
        threads.split(lambda begin, end: seen.extend(range(begin, end)), 100)
        return sorted(seen)

    with ThreadPoolExecutor(2) as callers:
        assert list(callers.map(count, range(2))) == [list(range(100))] * 2


def test_threads_end_with_whoever_they_work_for() -> None:
    threads, found = Threads(3), list[threading.Thread]()
    both = threading.Barrier(3)

    def work(_: int, __: int) -> None:
        both.wait()
        found.append(threading.current_thread())

    threads.split(work, 3)
    others = set(found) - {threading.current_thread()}
    assert len(others) == 2
    del threads
    for thread in others:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_thread_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="expected at least one thread"):
        Engine(BUNDLE, count)
