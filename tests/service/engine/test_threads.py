"""Any number of threads gives the answer of one."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from service.engine import DescriptorError, Engine
from service.engine.threads import Threads
from tests.support.samples import CONFIG, random_bundle, random_descriptors, random_png

# Images of several strips, and of one.
BUNDLE = random_bundle(replace(CONFIG, max_side=400))
ALONE = Engine(BUNDLE)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("size", [(20, 20), (21, 64), (100, 90), (310, 190)])
def test_scores_do_not_depend_on_the_threads(threads: int, size: tuple[int, int]) -> None:
    data = random_png(3, *size)
    found = Engine(BUNDLE, threads).scores(data)
    np.testing.assert_array_equal(found, ALONE.scores(data))


@pytest.mark.parametrize("count", [0, 1, 7, 1023, 5000])
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
@pytest.mark.parametrize("parts", [0, 1, 3, 100])
def test_as_many_threads_work_as_there_are_parts_for(count: int, parts: int) -> None:
    callers: list[int] = []
    Threads(count).run(lambda: callers.append(threading.get_ident()), parts)
    assert len(callers) == max(min(count, parts), 1)
    assert threading.get_ident() in callers


def test_work_begins_before_the_caller_joins_in() -> None:
    begun, callers = threading.Event(), list[threading.Thread]()

    def work() -> None:
        callers.append(threading.current_thread())
        begun.set()

    running = Threads(2).begin(work, 2)
    assert begun.wait(60)
    assert threading.current_thread() not in callers
    running.finish()
    assert len(callers) == 2
    assert callers[1] is threading.current_thread()


def test_work_can_be_waited_for_without_joining_in() -> None:
    ended: list[int] = []
    running = Threads(3).begin(lambda: ended.append(threading.get_ident()), 3)
    running.wait()
    assert len(ended) == 2
    assert threading.get_ident() not in ended


def test_an_error_is_raised_when_all_have_ended() -> None:
    both, ended, caller = threading.Barrier(2), list[int](), threading.get_ident()

    def work() -> None:
        both.wait()
        if threading.get_ident() != caller:
            raise ValueError("the other one")
        ended.append(caller)

    threads = Threads(2)
    with pytest.raises(ValueError, match="the other one"):
        threads.run(work, 2)
    assert ended == [caller]
    threads.run(lambda: ended.append(0), 2)
    assert ended == [caller, 0, 0]


def test_an_error_of_the_caller_waits_for_the_others() -> None:
    go_on, ended, caller = threading.Event(), list[int](), threading.get_ident()

    def work() -> None:
        if threading.get_ident() == caller:
            go_on.set()
            raise ValueError("the first one")
        go_on.wait()
        ended.append(threading.get_ident())

    with pytest.raises(ValueError, match="the first one"):
        Threads(3).run(work, 3)
    assert len(ended) == 2


def test_callers_at_once_all_get_their_work_done() -> None:
    threads, both = Threads(2), threading.Barrier(2)

    def count(number: int) -> list[int]:
        seen: list[int] = []
        both.wait()
        threads.run(lambda: seen.append(number), 2)
        return seen

    with ThreadPoolExecutor(2) as callers:
        assert list(callers.map(count, range(2))) == [[0, 0], [1, 1]]


def test_threads_end_with_whoever_they_work_for() -> None:
    threads, found = Threads(3), list[threading.Thread]()
    all_three = threading.Barrier(3)

    def work() -> None:
        all_three.wait()
        found.append(threading.current_thread())

    threads.run(work, 3)
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
