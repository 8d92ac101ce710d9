"""Memory that a thread keeps is its own."""

import threading

import numpy as np

from service.engine.arrays import Float32Array
from service.engine.encoding import Kind, band_room
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


def test_images_of_one_width_share_a_map() -> None:
    kind = Kind(128, wide=False, nonzeros=5)
    first, second, other = (band_room(width, 2, 8, kind) for width in (40, 40, 50))
    assert first.source.features is second.source.features
    assert first.source.features is not other.source.features
