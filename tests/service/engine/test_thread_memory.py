"""Memory that a thread keeps is its own."""

import threading

import numpy as np

from service.engine import sift
from service.engine.arrays import Float32Array
from service.engine.thread_memory import kept_by_thread


@kept_by_thread
def some_memory(count: int) -> Float32Array:
    return np.zeros(count, np.float32)


def of_another_thread(count: int) -> Float32Array:
    found: list[Float32Array] = []
    thread = threading.Thread(target=lambda: found.append(some_memory(count)))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_gets_the_same_memory_again() -> None:
    assert some_memory(3) is some_memory(3)
    assert some_memory(3) is not some_memory(4)


def test_no_two_threads_get_the_same_memory() -> None:
    assert of_another_thread(3) is not some_memory(3)


def test_memory_that_was_not_asked_for_lately_is_not_kept() -> None:
    first = some_memory(100)
    for count in range(101, 120):
        some_memory(count)
    assert some_memory(100) is not first


def test_images_of_one_width_share_a_map_and_not_their_pixels() -> None:
    one, two = (np.full((height, 40), height, np.float32) for height in (50, 60))
    first, second = (sift.in_bands(gray, 2, 8) for gray in (one, two))
    assert first.features is second.features
    assert first.gray.shape == (50, 40)
    assert second.gray.shape == (60, 40)
