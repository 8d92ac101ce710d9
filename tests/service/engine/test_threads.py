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
def test_as_many_threads_help_as_there_are_parts_for(count: int, parts: int) -> None:
    helpers = max(min(count, parts) - 1, 0)
    all_helpers, callers = threading.Barrier(helpers + 1), list[int]()

    def work() -> None:
        callers.append(threading.get_ident())
        all_helpers.wait(60)

    threads = Threads(count)
    threads.help(work, parts)
    all_helpers.wait(60)
    assert len(set(callers)) == helpers
    assert threading.get_ident() not in callers


def test_an_error_of_a_helper_is_logged_and_it_helps_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads, ended = Threads(2), threading.Event()

    def fail() -> None:
        raise ValueError("no help today")

    threads.help(fail, 2)
    threads.help(ended.set, 2)
    assert ended.wait(60)
    assert "a thread could not help with an image" in caplog.text
    assert "no help today" in caplog.text


def test_an_image_is_done_when_no_helper_comes() -> None:
    data, busy = random_png(3, 310, 190), threading.Event()
    engine = Engine(BUNDLE, 2)
    engine.threads.help(lambda: busy.wait(60), 2)
    try:
        np.testing.assert_array_equal(engine.scores(data), ALONE.scores(data))
    finally:
        busy.set()


def test_callers_at_once_share_their_helpers() -> None:
    engine, both = Engine(BUNDLE, 2), threading.Barrier(2)
    images = [random_png(seed, 310, 190) for seed in range(2)]

    def scores(data: bytes) -> list[list[float]]:
        both.wait(60)
        return [engine.scores(data).tolist() for _ in range(5)]

    with ThreadPoolExecutor(2) as callers:
        found = list(callers.map(scores, images))
    assert found == [[ALONE.scores(data).tolist()] * 5 for data in images]


def test_threads_end_with_whoever_they_work_for() -> None:
    threads, found = Threads(3), list[threading.Thread]()
    all_three = threading.Barrier(3)

    def work() -> None:
        found.append(threading.current_thread())
        all_three.wait(60)

    threads.help(work, 3)
    all_three.wait(60)
    assert len(set(found)) == 2
    del threads
    for thread in found:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_thread_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="expected at least one thread"):
        Engine(BUNDLE, count)
